//! The functions that each Kubernetes release declares.

mod collections;
mod core;
mod kubernetes;

use std::collections::HashMap;

use crate::Minor;
use crate::types::Type;

/// The functions of one release, by name.
#[derive(Debug)]
pub(crate) struct Functions {
    by_name: HashMap<&'static str, Function>,
}

/// A function and its overloads, in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

/// One signature. `params` are the letters of its type parameters; a member function is called on
/// its first argument.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) params: Vec<char>,
}

impl Functions {
    /// Reads the tables. A row is `name#overload#arguments#result#releases`: a dot before the name
    /// marks a member, `;` separates arguments, and `31-36` are the minors that declare it.
    pub(crate) fn for_minor(minor: Minor) -> Self {
        let mut by_name: HashMap<&'static str, Function> = HashMap::new();
        for row in [core::TABLE, collections::TABLE, kubernetes::TABLE]
            .into_iter()
            .flat_map(str::lines)
        {
            let mut fields = row.split('#');
            let mut field = || fields.next().unwrap_or_default();
            let (name, id, args, result, releases) = (field(), field(), field(), field(), field());
            if !includes_minor(releases, minor) {
                continue;
            }
            let plain = name.strip_prefix('.').unwrap_or(name);
            let args: Vec<Type> = args
                .split(';')
                .filter(|a| !a.is_empty())
                .map(Type::read)
                .collect();
            let letters = ['A', 'B', 'K', 'V', 'T'];
            let result = Type::read(result);
            let params = letters
                .into_iter()
                .filter(|l| args.iter().chain([&result]).any(|t| mentions_type(t, *l)))
                .collect();
            let overload = Overload {
                id,
                member: plain.len() < name.len(),
                args,
                result,
                params,
            };
            by_name
                .entry(plain)
                .or_insert_with(|| Function {
                    name: plain,
                    overloads: Vec::new(),
                })
                .overloads
                .push(overload);
        }
        Self { by_name }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name)
    }
}

fn mentions_type(t: &Type, letter: char) -> bool {
    *t == Type::Param(super::types::Param::Declared(letter))
        || t.parts().into_iter().any(|p| mentions_type(p, letter))
}

fn includes_minor(releases: &str, minor: Minor) -> bool {
    let (from, to) = releases.split_once('-').unwrap_or((releases, ""));
    let bound = |text: &str, default: u8| text.parse().unwrap_or(default);
    (bound(from, 0)..=bound(to, u8::MAX)).contains(&minor.number())
}

/// Returns the runtime name of a type that expressions can name, and the type of that name.
pub(crate) fn type_name(name: &str, minor: Minor) -> Option<(&'static str, Type)> {
    let (runtime, read) = match name {
        "bool" => ("bool", "type(bool)"),
        "bytes" => ("bytes", "type(bytes)"),
        "double" => ("double", "type(double)"),
        "int" => ("int", "type(int)"),
        "uint" => ("uint", "type(uint)"),
        "string" => ("string", "type(string)"),
        "list" => ("list", "type(list(A))"),
        "map" => ("map", "type(map(A, B))"),
        "null_type" => ("null_type", "type(null)"),
        "type" => ("type", "type(type)"),
        "optional_type" if minor >= Minor::V1_37 => ("optional_type", "type(optional_type(dyn))"),
        "optional_type" => ("optional_type", "type(optional_type)"),
        _ => return None,
    };
    Some((runtime, Type::read(read)))
}
