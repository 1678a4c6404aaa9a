//! Generates what attackers and old habits put into expressions: odd times, patterns, escapes,
//! optionals behind `dyn`, ranges that end before they start, and constants that fail while the
//! program is compiled. [`Maker`](super::expression::Maker) mixes these with the usual forms.

use super::expression::{Maker, Scope};
use super::{optional, several};
use crate::differential::node::Node;
use crate::differential::random::Random;

/// Expressions without sub-expressions, by type.
pub(crate) const LEAVES: &[(&str, &[&str])] = &[
    (
        "ty",
        &[
            "timestamp",
            "duration",
            "google.protobuf.Duration",
            "google.protobuf.Any",
            "net.IP",
            "optional_type",
        ],
    ),
    (
        "T",
        &[
            "timestamp('2026-01-02T03:04:05,5Z')",
            "timestamp('2026-01-02T03:04:05,123456789012+01:00')",
            "timestamp('2026-01-02T3:04:05Z')",
            "timestamp('2026-01-02T03:04:05+24:60')",
            "timestamp('2026-01-02T03:04:05-24:00')",
            "timestamp('0001-01-01T00:00:00Z')",
            "timestamp('9999-12-31T23:59:59.999999999Z')",
            "timestamp(claims.oddtime)",
            "timestamp(253402300799)",
            "timestamp(-62135596800)",
        ],
    ),
    (
        "D",
        &[
            "duration('1h2h')",
            "duration('.5s')",
            "duration('1.5h')",
            "duration('9223372036854775807ns')",
            "duration('-2562047h')",
            "duration(claims.odddur)",
        ],
    ),
    (
        "s",
        &[
            "'\\ue000'",
            "'\\uf8ff'",
            "'\\ufdd0'",
            "'\\uffff'",
            "'\\U0001fffe'",
            "'\\U0010ffff'",
            "'\\u0378'",
            "'\\u200b\\u202e'",
            "'\\x7f\\x80\\xad'",
            "'\\377'",
            "'a\\u0301'",
            "\"\\?\\`\\a\\v\"",
            "'\\ufffd'",
            "string(claims.odd)",
            "claims.odd",
            "'2026-01-02T03:04:05,5Z'",
            "'2026-01-02T3:04:05Z'",
            "'%s %d'",
            "'user@host'",
            "'https://u@h.test/%41?a=%20b&a;b#frag'",
            "'HTTP://[fe80::1%25en0]:80/'",
            "'//h/p'",
            "'10.0.0.1/33'",
            "'1e99'",
            "'-0'",
            "'0x1p-2'",
            "'Inf'",
            "'nan'",
            "'1_000'",
            "'+5'",
            "'012'",
            "'TRUE'",
        ],
    ),
    (
        "re",
        &[
            "'(?P<n>a)(?P<n>b)'",
            "'(?<n>a)|(?<n>b)'",
            "'(?P<n>a)(?<n>b)?'",
            "'(?ii)A'",
            "'(?i-s:a.)'",
            "'(?U)a+'",
            "'(?-)a'",
            "'(?P<>a)'",
            "'(?=a)'",
            "'a**'",
            "'a{1001}'",
            "'a{2}{3}'",
            "'(a{100}){11}'",
            "'[b-a]'",
            "'[[:word:]]+'",
            "'[^[:^alpha:]]'",
            "'\\\\Qa.b\\\\E+'",
            "'\\\\B'",
            "'\\\\ba'",
            "'\\\\pL+'",
            "'\\\\p{Greek}'",
            "'\\\\P{Lu}'",
            "'\\\\p{Nope}'",
            "'\\\\x{110000}'",
            "'\\\\8'",
            "'[]a]'",
            "'[a-\\\\d]'",
            "'('",
            "'a)'",
            "'\\\\'",
            "'\\\\x{e000}'",
            "'[\\ue000-\\uf8ff]'",
            "'x*?y'",
            "'^*'",
            "'a|*'",
            "'(|a)*'",
            "'\\\\C'",
            "''",
        ],
    ),
    (
        "d",
        &[
            "-0.0",
            "0.0 / 0.0",
            "1.0 / 0.0",
            "4.9e-324",
            "-1.0 / 0.0",
            "123456789.125",
            "1e21",
        ],
    ),
    (
        "i",
        &[
            "-9223372036854775808",
            "int('-0')",
            "int('0x10')",
            "2147483648",
            "-3",
            "int(claims.negzero)",
        ],
    ),
    (
        "os",
        &[
            "optional.of(string(claims.sub))",
            "optional.of(claims.missing).optMap(x, 'a')",
            "{'a': 'x'}[?'a']",
            "dyn(optional.of('a'))",
            "optional.ofNonZeroValue(string(claims.sub))",
        ],
    ),
    (
        "oi",
        &[
            "optional.of(int(claims.n))",
            "dyn(optional.of(1))",
            "[1][?3]",
        ],
    ),
    (
        "oa",
        &[
            "optional.of(claims.sub)",
            "optional.of(claims.missing)",
            "optional.of(claims.nested)",
            "optional.of(claims)",
            "optional.of(claims.groups)",
            "optional.of(optional.of(claims.sub))",
            "optional.ofNonZeroValue(claims.emptylist)",
            "optional.ofNonZeroValue(claims.negzero)",
            "claims.?huge",
            "claims.?deep",
        ],
    ),
    (
        "a",
        &[
            "claims.oddtime",
            "claims.odd",
            "claims.huge",
            "claims.negzero",
            "claims.deep",
            "claims.deep[0]",
            "claims.hugelist",
            "claims.odddur",
        ],
    ),
    (
        "b",
        &[
            "has(claims.huge)",
            "has(claims.deep)",
            "has(optional.of(claims).sub)",
            "claims.huge == 1",
            "claims.negzero == 0",
        ],
    ),
];

/// Whether a leaf uses no claim.
fn without_claims(text: &str) -> bool {
    !text.contains("claims")
}

/// Expressions with sub-expressions, by type.
pub(crate) const FORMS: &[(&str, &[&str])] = &[
    (
        "b",
        &[
            "dyn({os}).hasValue()",
            "dyn({s}).hasValue()",
            "dyn({a}).hasValue()",
            "optional.of({a}).hasValue()",
            "optional.of({dyn}).hasValue()",
            "dyn({os}).or({os}).hasValue()",
            "dyn({s}).or({os}).hasValue()",
            "{os}.or(dyn({s})).hasValue()",
            "{oa}.or(dyn({oa})).hasValue()",
            "(dyn({os}) == {os})",
            "(dyn({os}) == {s})",
            "({oa} == {oa})",
            "({dyn} == {oa})",
            "dyn({os}).startsWith({s})",
            "dyn({i}).startsWith({s})",
            "dyn({ls}).exists_one(%v, {b|v:dyn})",
            "{s}.matches({s})",
            "{s}.matches(dyn({re}))",
            "dyn({s}).matches({re})",
            "{dyn}.matches({re})",
            "(timestamp({s}) < {T})",
            "(duration({s}) < {D})",
            "(int({s}) == {i})",
            "(uint({s}) == {u})",
            "(double({s}) == {d})",
            "bool({s})",
            "(bytes({s}) == {y})",
            "({d} == {i})",
            "({i} in [{d}, {d}])",
            "({d} in [{i}, 2.0])",
            "({dyn} in [{i}, 3])",
            "({dyn} in ['a', 'b'])",
            "({T} in [{T}])",
            "{ls}.slice({i}, {i}) == {ls}",
            "(lists.range(({i}) % 5) == {li})",
            "isURL({s})",
            "isIP({s})",
            "isCIDR({s})",
            "isQuantity({s})",
            "(1 / 0 == 1) || {b}",
            "{b} || (1 / 0 == 1)",
            "int('x') == 1",
            "{b} || int('x') == 1",
            "(true ? {b} : int('x') == 1)",
            "duration('x') == {D} || timestamp('x') == {T}",
            "has(dyn({oa}).a)",
            "has({oa}.a)",
            "has({os}.a)",
            "sets.contains(dyn({ls}), {ls})",
            "sets.intersects({li}, dyn({ld}))",
            "({ty} == optional_type)",
            "({ty} == google.protobuf.Timestamp)",
            "{fm}.validate({s}).hasValue()",
        ],
    ),
    (
        "s",
        &[
            "{s}.substring({i}, {i})",
            "{s}.substring({i})",
            "{s}.charAt({i})",
            "{s}.replace({s}, {s}, {i})",
            "{s}.split({s}, {i}).join('|')",
            "{s}.findAll({re}, {i}).join('|')",
            "{s}.find({re})",
            "{s}.find({s})",
            "dyn({s}).substring({i}, {i})",
            "dyn({os}).orValue({s})",
            "dyn({s}).orValue({s})",
            "{os}.orValue(dyn({i}))",
            "dyn({os}).or({os}).orValue({s})",
            "dyn({os}).value()",
            "dyn({s}).value()",
            "{oa}.value()",
            "optional.of({a}).orValue({s})",
            "optional.of({a}).value()",
            "dyn({oa}).a",
            "{oa}.a.orValue({s})",
            "{oa}[?'a'].orValue({s})",
            "string({T})",
            "string({D})",
            "string({d})",
            "string(ip({s}))",
            "string(cidr({s}))",
            "string(url({s}))",
            "url({s}).getHostname()",
            "url({s}).getQuery()['a'][0]",
            "string(quantity({s}))",
            "string(bytes({s}))",
            "string(b'\\xff')",
            "string(timestamp({s}))",
            "string(int('x'))",
            "string(type({dyn}))",
            "strings.quote({s})",
            "'%s'.format([{dyn}])",
            "'%s'.format([{ls}])",
            "'%s'.format([{mss}])",
            "'%s'.format([{T}])",
            "'%s'.format([{ty}])",
            "'%e'.format([{d}])",
            "'%.3e'.format([{d}])",
            "'%f'.format([{d}])",
            "'%.20f'.format([{d}])",
            "'%d'.format([{d}])",
            "'%x'.format([{s}])",
            "'%s'.format([{os}])",
            "{s}.reverse()",
            "{ls}.reverse().join()",
            "({b} ? {s} : string(int('x')))",
            "{s} + {a}",
        ],
    ),
    (
        "ls",
        &[
            "{ls}.slice({i}, {i})",
            "{s}.split({s}, {i})",
            "{s}.split({s})",
            "{s}.findAll({re}, {i})",
            "{s}.findAll({s})",
            "dyn({ls}).slice({i}, {i})",
            "[?dyn({os})]",
            "[?{oa}]",
            "dyn({ls}).map(%v, {s|v:dyn})",
            "dyn({mss}).map(%v, {s|v:dyn})",
            "[dyn({os}), dyn({s})]",
            "[{os}, {os}]",
            "[type({dyn}), type({s})]",
            "lists.range(({i}) % 7).map(%v, {s|v:i})",
            "{fm}.validate({s}).orValue([])",
            "optional.of({ls}).value()",
            "dyn({ols}).orValue({ls})",
        ],
    ),
    (
        "i",
        &[
            "{s}.indexOf({s}, {i})",
            "{s}.lastIndexOf({s}, {i})",
            "{ls}.indexOf(dyn({s}))",
            "int({s})",
            "int({T})",
            "int({d})",
            "{T}.getHours('+25:61')",
            "{T}.getMinutes('-00:30')",
            "{T}.getSeconds('1:2')",
            "{T}.getFullYear('UTC')",
            "{T}.getHours({s})",
            "{T}.getMilliseconds()",
            "size(lists.range(({i}) % 9))",
            "dyn({oi}).orValue({i})",
            "{li}[{d}]",
            "{li}[{i}]",
            "dyn({li})[{s}]",
            "int('x')",
        ],
    ),
    (
        "d",
        &[
            "double({s})",
            "({d} % {d})",
            "double({q})",
            "-({d})",
            "{ld}[{i}]",
        ],
    ),
    (
        "T",
        &[
            "({T} + {D})",
            "({T} - {D})",
            "timestamp({s})",
            "timestamp({i})",
        ],
    ),
    (
        "D",
        &["({T} - {T})", "duration({s})", "({D} + {D})", "-{D}"],
    ),
    (
        "oa",
        &[
            "dyn({oa}).or({oa})",
            "{oa}.or(dyn({a}))",
            "optional.of({a})",
            "{oa}.optMap(%v, {dyn|v:dyn})",
            "dyn({oa}).optMap(%v, {dyn|v:dyn})",
            "{oa}.?a",
            "{oa}[?0]",
            "{oa}.optFlatMap(%v, {oa|v:dyn})",
        ],
    ),
    (
        "os",
        &[
            "dyn({os}).or({os})",
            "{os}.or(dyn({os}))",
            "{os}.optFlatMap(%v, {os|v:s})",
            "{ls}[?{i}]",
            "dyn({mss})[?{s}]",
        ],
    ),
    (
        "dyn",
        &[
            "dyn({os})",
            "dyn({oa})",
            "dyn({ols})",
            "dyn({D})",
            "dyn({ip})",
            "dyn({sv})",
            "dyn({fm})",
            "dyn({ty})",
            "dyn({y})",
            "dyn({n})",
            "dyn({u})",
            "{dyn}.orValue({dyn})",
            "optional.of({dyn}).value()",
            "[{dyn}][0]",
        ],
    ),
    ("u", &["uint({s})", "uint({d})", "uint('-1')"]),
    (
        "q",
        &[
            "quantity({s})",
            "quantity('1e18')",
            "quantity('12345678901234567890')",
            "quantity('0.0000000001')",
            "quantity('.5')",
            "quantity('1.5Ki')",
        ],
    ),
    ("url", &["url({s})"]),
];

/// A random leaf of that type.
pub(crate) fn leaf(random: &mut Random, scope: Scope, wanted: &str) -> Option<&'static str> {
    let (_, all) = LEAVES.iter().find(|(kind, _)| *kind == wanted)?;
    let allowed: Vec<&'static str> = all
        .iter()
        .copied()
        .filter(|text| scope == Scope::Claims || without_claims(text))
        .collect();
    (!allowed.is_empty()).then(|| allowed[random.below(allowed.len())])
}

/// A random form of that type.
pub(crate) fn form(random: &mut Random, wanted: &str) -> Option<&'static str> {
    let (_, all) = FORMS.iter().find(|(kind, _)| *kind == wanted)?;
    Some(all[random.below(all.len())])
}

/// A whole expression; some are damaged afterwards.
pub(crate) fn expression(random: &mut Random, scope: Scope, wanted: &str) -> String {
    if random.percent(6) {
        return random.pick(&LITERALS).to_owned();
    }
    if random.percent(5) {
        return several::expression(random);
    }
    if random.percent(15)
        && let Some(text) = optional::expression(random, scope, wanted)
    {
        return text;
    }
    let depth = random.one(&[1, 1, 2, 2, 3]);
    let text = Maker::hostile(random, scope).expression(wanted, depth);
    if random.percent(8) {
        damaged(random, &text)
    } else {
        text
    }
}

/// Removes, doubles, replaces or inserts one or two characters.
fn damaged(random: &mut Random, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(2) {
        let place = random.below(characters.len());
        let odd = random.one(&[
            '\'', '"', '(', ')', '[', ']', '{', '}', '.', '?', ':', ',', '!', '-', '\\', '`', '#',
            '$', ';', '@', '\t', '\n', '\u{a0}', 'é', '\u{e000}', '0', 'u', 'r', 'b',
        ]);
        match (random.below(4), characters.get(place).copied()) {
            (0, Some(_)) => drop(characters.remove(place)),
            (1, Some(same)) => characters.insert(place, same),
            (2, Some(_)) => characters[place] = odd,
            _ => characters.insert(place, odd),
        }
    }
    characters.into_iter().collect()
}

/// Literals that are refused, or that are read in an unusual way.
pub(crate) const LITERALS: [&str; 40] = [
    "'\\U00110000'",
    "'\\UFFFFFFFF'",
    "'\\U80000041'",
    "'\\ud800'",
    "'\\U0010FFFF'",
    "'\\u12'",
    "'\\x4'",
    "'\\400'",
    "'\\8'",
    "'\\'",
    "b'\\u0041'",
    "b'\\377'",
    "string(b'\\xc3\\xa9')",
    "r'\\U00110000'",
    "'''a\n'b'''",
    "\"\"\"a\"\"\"\"",
    "'a\nb'",
    "9223372036854775808",
    "-9223372036854775808",
    "--9223372036854775808",
    "0x8000000000000000",
    "-0x8000000000000000",
    "18446744073709551616u",
    "1e309",
    "-1e309",
    "1e-400",
    "00",
    "1.e1",
    "0xg",
    "1u1",
    "true.x",
    "a`b`",
    "claims.`sub`",
    "claims.`dash-ed`",
    "claims.in",
    "claims.as",
    "claims.true",
    "in",
    "__result__",
    ".claims.sub",
];

/// Adds the claims that only hostile expressions use.
pub(crate) fn claims(random: &mut Random, claims: &mut Node) {
    for (name, values) in CLAIMS {
        if random.percent(70) {
            claims.set(name, Node::raw(random.pick(values)));
        }
    }
    if random.percent(25) {
        claims.set("deep", Node::raw(deep(random)));
    }
}

const CLAIMS: &[(&str, &[&str])] = &[
    (
        "oddtime",
        &[
            "\"2026-01-02T03:04:05,5Z\"",
            "\"2026-01-02T3:04:05Z\"",
            "\"2026-01-02T03:04:05+24:00\"",
            "\"2026-01-02T03:04:05+23:60\"",
            "\"2026-01-02T03:04:05.Z\"",
            "\"2026-01-02T03:04:60Z\"",
            "\"2026-02-30T03:04:05Z\"",
            "\"0000-12-31T23:59:59Z\"",
            "\"9999-12-31T23:59:59-01:00\"",
            "\"2026-01-02t03:04:05z\"",
            "\"2026-01-02T03:04:05\"",
            "\"2026-01-02 03:04:05Z\"",
        ],
    ),
    (
        "odddur",
        &[
            "\"1h2h\"",
            "\".5s\"",
            "\"1.s\"",
            "\"+3m\"",
            "\"1\"",
            "\"9223372036854775808ns\"",
            "\"1µs\"",
            "\"\"",
        ],
    ),
    (
        "odd",
        &[
            "\"\\ue000\"",
            "\"\\uf8ff\\uffff\"",
            "\"\\ufdd0\"",
            "\"\\u202e\"",
            "\"\\u0378\"",
            "\"\\u0000\"",
            "\"\\ud800\"",
            "\"\\\"\\\\\"",
            "\"\\ud83f\\udffe\"",
        ],
    ),
    (
        "huge",
        &["1e400", "-1e400", "1e309", "123456789e999", "1e308"],
    ),
    ("hugelist", &["[1,1e400]", "[{\"a\":1e400}]", "[1e308]"]),
    ("negzero", &["-0", "-0.0", "-0e5", "0.0", "-1e-400"]),
];

/// A payload that is nested some hundred to some thousand levels deep.
fn deep(random: &mut Random) -> String {
    let depth = random.one(&[100, 198, 200, 210, 1000, 9990, 10_010]);
    match random.below(3) {
        0 => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        1 => format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
        _ => format!(
            "{}{}{}",
            "[{\"a\":".repeat(depth / 2),
            "null",
            "}]".repeat(depth / 2)
        ),
    }
}
