//! Selects ClusterRoles by their labels.

use std::collections::BTreeMap;

/// A selector of labels. Without any requirement it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Labels that an object must have, with these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all must hold.
    pub match_expressions: Vec<Requirement>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How the label is compared with the values.
    pub operator: Operator,
    /// The values; none for [`Operator::Exists`] and [`Operator::DoesNotExist`].
    pub values: Vec<String>,
}

/// How a requirement compares a label with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent, or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Operator {
    /// The names of all operators.
    pub(crate) const NAMES: [&'static str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

    /// The operator with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }

    /// Whether the operator is of use without values.
    pub(crate) fn takes_values(self) -> bool {
        matches!(self, Self::In | Self::NotIn)
    }
}

impl LabelSelector {
    /// Whether it selects an object with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let own = &self.match_labels;
        own.iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.is_met_by(labels))
    }

    /// Label values of which every selected object has one, if the selector names any.
    pub(crate) fn indexed_values(&self) -> Option<(&str, Vec<&str>)> {
        let by_label = self.match_labels.iter().next();
        if let Some((key, value)) = by_label {
            return Some((key, vec![value]));
        }
        let by_expression = self
            .match_expressions
            .iter()
            .find(|requirement| requirement.operator == Operator::In)?;
        let values = by_expression.values.iter().map(String::as_str).collect();
        Some((&by_expression.key, values))
    }
}

impl Requirement {
    fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        let label = labels.get(&self.key);
        let is_listed = || label.is_some_and(|label| self.values.contains(label));
        match self.operator {
            Operator::In => is_listed(),
            Operator::NotIn => !is_listed(),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_met_as_in_kubernetes() {
        let labels = BTreeMap::from([("tier".to_owned(), "base".to_owned())]);
        for (key, operator, values, met) in [
            ("tier", Operator::In, &["base", "other"][..], true),
            ("tier", Operator::In, &["other"], false),
            ("none", Operator::In, &["base"], false),
            ("tier", Operator::NotIn, &["base"], false),
            ("tier", Operator::NotIn, &["other"], true),
            ("none", Operator::NotIn, &["base"], true),
            ("tier", Operator::Exists, &[], true),
            ("none", Operator::Exists, &[], false),
            ("tier", Operator::DoesNotExist, &[], false),
            ("none", Operator::DoesNotExist, &[], true),
        ] {
            let selector = LabelSelector {
                match_expressions: vec![Requirement {
                    key: key.to_owned(),
                    operator,
                    values: values.iter().map(|&value| value.to_owned()).collect(),
                }],
                ..LabelSelector::default()
            };
            assert_eq!(selector.selects(&labels), met, "{selector:?}");
        }
        assert!(LabelSelector::default().selects(&labels));
        assert!(LabelSelector::default().selects(&BTreeMap::new()));
    }
}
