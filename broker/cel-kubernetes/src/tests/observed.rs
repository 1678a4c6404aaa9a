//! Replays the results of kube-apiserver's own packages in `observed.tsv`, for every minor release.
//!
//! The differential test of `integration/` writes that file and compares it with the packages. Each
//! line has a scope, an expression as a JSON string, and the observations, each after the number of
//! the first minor release that gives it: `refused`, or the cost and then `TYPE = VALUE` or `fails
//! MESSAGE`. A `~` differs from run to run, because Go iterates a map in random order. `panics` is
//! an expression that kills the API server.

use super::*;

/// The largest share of results that may be undetermined here, although the API server's is fixed,
/// in per mille.
const MOST_UNDETERMINED: usize = 20;

struct Row {
    scope: Scope,
    text: String,
    observation: &'static str,
}

/// Returns the observations of one minor release.
fn rows(minor: Minor) -> Vec<Row> {
    let lines = include_str!("observed.tsv").lines();
    lines
        .map(|line| {
            let mut fields = line.split('\t');
            let scope = match fields.next().unwrap() {
                "claims" => Scope::Claims,
                _ => Scope::User,
            };
            let text = serde_json::from_str(fields.next().unwrap()).unwrap();
            let observation = observation(fields, minor);
            Row {
                scope,
                text,
                observation,
            }
        })
        .collect()
}

/// Returns the last observation that holds for a minor release.
pub(super) fn observation<'a>(fields: impl Iterator<Item = &'a str>, minor: Minor) -> &'a str {
    fields
        .map(|field| field.split_once(' ').unwrap())
        .take_while(|(since, _)| since.parse::<u8>().unwrap() <= minor.number())
        .last()
        .unwrap()
        .1
}

/// Compares our result with an observation. Returns what differs, or whether ours is determined.
pub(super) fn compare(
    environment: &Environment,
    input: Input<'_>,
    (scope, text): (Scope, &str),
    observation: &str,
) -> Result<bool, String> {
    let (result, cost, shown_type) = match environment.compile(scope, text) {
        Err(CompileFault::Undetermined(_)) => return Ok(false),
        Err(CompileFault::Refused { .. }) if observation == "refused" => return Ok(true),
        Err(CompileFault::Refused { message }) => return Err(format!("refused: {message}")),
        Ok(expression) => {
            let (result, cost) = expression.evaluate_with_cost(input);
            (result, cost, expression.output_type())
        }
    };
    if matches!(result, Err(EvaluateFault::Undetermined(_))) {
        return Ok(false);
    }
    let ours = match &result {
        Ok(value) => format!("{shown_type} = {}", show(value)),
        Err(fault) => format!("fails {}", json!(fault.to_string())),
    };
    let Some((their_cost, theirs)) = observation.split_once(' ') else {
        return Err(format!("{cost:?} {ours}"));
    };
    let exact = !matches!(result, Err(EvaluateFault::Failed { exact: false, .. }));
    let same = if result.is_err() && (!exact || theirs == "fails ~") {
        theirs.starts_with("fails ")
    } else {
        theirs == ours
    };
    if same
        && (their_cost == "~"
            || their_cost
                .parse()
                .is_ok_and(|theirs| cost.contains(&theirs)))
    {
        Ok(true)
    } else {
        Err(format!("{cost:?} {ours}"))
    }
}

fn replay(minor: Minor) {
    on_a_small_stack(move || {
        let (claims, user) = inputs();
        let environment = Environment::new(minor);
        let (mut wrong, mut undetermined) = (Vec::new(), Vec::new());
        let rows = rows(minor);
        for row in &rows {
            let input = match row.scope {
                Scope::Claims => Input::Claims(&claims),
                Scope::User => Input::User(&user),
            };
            match compare(&environment, input, (row.scope, &row.text), row.observation) {
                Ok(true) => {}
                Ok(false) if matches!(row.observation, "~" | "panics") => {}
                Ok(false) => undetermined.push(&row.text),
                Err(ours) => wrong.push(format!(
                    "{}\n  API server: {}\n  ours:       {ours}",
                    row.text, row.observation
                )),
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {} differ in {minor}:\n{}",
            wrong.len(),
            rows.len(),
            wrong.join("\n")
        );
        assert!(
            rows.len() >= 5000 && undetermined.len() * 1000 <= rows.len() * MOST_UNDETERMINED,
            "{} of {} are undetermined in {minor}: {undetermined:#?}",
            undetermined.len(),
            rows.len()
        );
    });
}

// One test for each minor, so that they run concurrently.
macro_rules! replays {
    ($($name:ident => $minor:ident,)*) => {
        $(#[test]
        fn $name() {
            replay(Minor::$minor);
        })*

        #[test]
        fn every_minor_is_replayed() {
            assert_eq!([$(Minor::$minor),*], Minor::ALL);
        }
    };
}

replays! {
    replays_1_30 => V1_30,
    replays_1_31 => V1_31,
    replays_1_32 => V1_32,
    replays_1_33 => V1_33,
    replays_1_34 => V1_34,
    replays_1_35 => V1_35,
    replays_1_36 => V1_36,
    replays_1_37 => V1_37,
}
