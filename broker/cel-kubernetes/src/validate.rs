//! Checks what Kubernetes checks after the types: literals of durations, timestamps and patterns,
//! mixed aggregates, format strings.

use std::collections::HashSet;

use crate::Minor;
use crate::ast::{Expr, Kind};
use crate::check::{Checked, Issue};
use crate::library::{self, Pattern, PatternFault};
use crate::types::Type;
use crate::value::Val;

/// The most calls with a pattern, each of which is compiled.
const MAX_PATTERNS: usize = 270;

fn is_pattern(e: &Expr) -> bool {
    matches!(&e.kind, Kind::Call { function, .. }
        if matches!(function.as_str(), "matches" | "find" | "findAll"))
}

/// Returns the issues of a checked tree. `Err` if they cannot be decided here.
pub(crate) fn validate(root: &Expr, checked: &Checked, minor: Minor) -> Result<Vec<Issue>, String> {
    let mut issues = Vec::new();
    let patterns = root.walk().into_iter().filter(|e| is_pattern(e)).count();
    if patterns > MAX_PATTERNS {
        return Err("very many patterns".to_owned());
    }
    for e in root.walk() {
        if let Kind::Call {
            target,
            function,
            args,
        } = &e.kind
        {
            literal(function, args, &mut issues)?;
            if let (Some(target), "format", [args]) = (target, function.as_str(), args.as_slice()) {
                if minor == Minor::V1_31
                    && !matches!(target.kind, Kind::Literal(_))
                    && matches!(args.kind, Kind::List(_))
                {
                    return Err("a format that is no literal, over which 1.31 crashes".to_owned());
                }
                if minor > Minor::V1_30 {
                    format(e, target, args, checked, &mut issues);
                }
            }
        }
    }
    let exempt = exempt(root, minor);
    for e in root.walk().into_iter().filter(|e| !exempt.contains(&e.id)) {
        match &e.kind {
            Kind::List(elements) => {
                let mut first: Option<Type> = None;
                for element in elements {
                    let t = part(checked, &element.value, element.optional)?;
                    match &first {
                        None => first = Some(t),
                        Some(first) if *first != t => {
                            issues.push(mismatch(&element.value, first, &t));
                            break;
                        }
                        Some(_) => {}
                    }
                }
            }
            Kind::Map(entries) => {
                let mut first: Option<(Type, Type)> = None;
                for entry in entries {
                    let (k, v) = (
                        part(checked, &entry.key, false)?,
                        part(checked, &entry.value, entry.optional)?,
                    );
                    match &first {
                        None => first = Some((k, v)),
                        Some((key, value)) => {
                            if *key != k {
                                issues.push(mismatch(&entry.key, key, &k));
                            }
                            if *value != v {
                                issues.push(mismatch(&entry.value, value, &v));
                            }
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(issues)
}

fn mismatch(e: &Expr, expected: &Type, found: &Type) -> Issue {
    Issue {
        at: e.at,
        message: format!("expected type '{expected}' but found '{found}'"),
    }
}

/// Returns the type of an element. cel-go takes the first parameter of an optional element's type,
/// and panics if there is none.
fn part(checked: &Checked, e: &Expr, optional: bool) -> Result<Type, String> {
    let t = checked.types.get(&e.id).cloned().unwrap_or(Type::Dyn);
    if !optional {
        return Ok(t);
    }
    t.parts()
        .first()
        .map(|t| (*t).clone())
        .ok_or_else(|| "an optional element whose type is not known to be optional".to_owned())
}

/// Returns the nodes within calls of `format`, whose lists may be mixed. In 1.30 those are only the
/// arguments themselves and the parts of their literals.
fn exempt(root: &Expr, minor: Minor) -> HashSet<u32> {
    let formats = root
        .walk()
        .into_iter()
        .filter(|e| matches!(&e.kind, Kind::Call { function, .. } if function == "format"));
    let within = |e: &Expr| -> Vec<u32> {
        let nodes = if minor == Minor::V1_30 {
            within_literals(e)
        } else {
            e.walk()
        };
        nodes
            .into_iter()
            .map(|n| n.id)
            .filter(|id| *id != e.id)
            .collect()
    };
    formats.flat_map(within).collect()
}

fn within_literals(call: &Expr) -> Vec<&Expr> {
    let mut open = call.children();
    let mut found = Vec::new();
    while let Some(next) = open.pop() {
        found.push(next);
        if matches!(next.kind, Kind::List(_) | Kind::Map(_)) {
            open.extend(next.children());
        }
    }
    found
}

fn literal(function: &str, args: &[Expr], issues: &mut Vec<Issue>) -> Result<(), String> {
    let Some(Expr {
        kind: Kind::Literal(value),
        at,
        ..
    }) = args.first()
    else {
        return Ok(());
    };
    let wrong = match function {
        "duration" | "timestamp" => library::convert(function, value)?.is_error(),
        "matches" => match value {
            Val::Str(pattern) => match Pattern::compile(pattern) {
                Ok(_) => false,
                Err(PatternFault::Refused(_)) => true,
                Err(PatternFault::Beyond(reason)) => return Err(reason),
            },
            _ => return Err("a pattern that is no string".to_owned()),
        },
        _ => false,
    };
    if wrong {
        issues.push(Issue {
            at: *at,
            message: format!("invalid {function} argument"),
        });
    }
    Ok(())
}

fn format(e: &Expr, target: &Expr, args: &Expr, checked: &Checked, issues: &mut Vec<Issue>) {
    let (Kind::Literal(Val::Str(text)), Kind::List(elements)) = (&target.kind, &args.kind) else {
        return;
    };
    let type_of = |e: &Expr| checked.types.get(&e.id).cloned().unwrap_or(Type::Dyn);
    let types: Vec<Type> = elements.iter().map(|x| type_of(&x.value)).collect();
    let nested = |index: usize| {
        elements
            .get(index)
            .and_then(|x| unprintable(&x.value, &type_of))
    };
    if let Err(message) = library::check_format(text, &types, nested) {
        issues.push(Issue { at: e.at, message });
    }
}

/// Returns the name of a type, within a list or map literal, that `%s` does not print.
fn unprintable(e: &Expr, type_of: &impl Fn(&Expr) -> Type) -> Option<String> {
    let mut open = vec![e];
    while let Some(next) = open.pop() {
        let t = type_of(next);
        if !library::is_printable(&t) {
            return Some(library::runtime_name(&t));
        }
        if matches!(next.kind, Kind::List(_) | Kind::Map(_)) {
            open.extend(next.children());
        }
    }
    None
}
