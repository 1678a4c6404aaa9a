//! Facts about CEL (section 2.4 of the notes) and about the order of rules.

use super::Expected::{self, Groups, Refused, Rejected, User};
use super::{Fact, with};
use crate::differential::case::Case;
use crate::differential::node::Node;

pub(super) fn facts() -> Vec<Fact> {
    vec![
        rule(
            "an_email_verified_alone",
            "claims.email_verified",
            Refused("must evaluate to bool"),
            None,
        ),
        rule(
            "email_verified_compared",
            "claims.email_verified == true",
            User("hub:jane"),
            None,
        ),
        rule(
            "any_is_no_range",
            "claims.groups.all(g, g != '')",
            Refused(
                "expression of type 'any' cannot be range of a comprehension (must be list, map, \
                 or dynamic)",
            ),
            None,
        ),
        rule(
            "dyn_is_a_range",
            "dyn(claims.groups).all(g, g != '')",
            User("hub:jane"),
            None,
        ),
        rule(
            "a_list_of_any_and_string",
            "[claims.sub, 'b'].size() == 2",
            Refused("expected type 'any' but found 'string'"),
            None,
        ),
        rule(
            "a_lifetime",
            "claims.exp - claims.iat <= 3600",
            User("hub:jane"),
            None,
        ),
        rule(
            "numbers",
            "claims.n + 1 == 6",
            User("hub:jane"),
            Some(Rejected("no such overload")),
        ),
        rule(
            "fractions",
            "claims.n + 1.0 == 6.0",
            Rejected("no such overload"),
            Some(User("hub:jane")),
        ),
        rule("portable", "int(claims.n) + 1 == 6", User("hub:jane"), None),
        rule(
            "digits",
            "string(claims.big) == '1234567890123'",
            User("hub:jane"),
            Some(Rejected("failed: ")),
        ),
        rule(
            "escapes",
            "claims.kubernetes__dot__io.namespace == 'x'",
            Rejected("no such key: kubernetes__dot__io"),
            Some(User("hub:jane")),
        ),
        rule(
            "an_index",
            "claims['kubernetes.io'].namespace == 'x'",
            User("hub:jane"),
            None,
        ),
        rule(
            "names_of_claims",
            "'sub' in claims",
            User("hub:jane"),
            Some(Rejected("no such overload")),
        ),
        rule(
            "size_of_claims",
            "size(claims) > 0",
            User("hub:jane"),
            Some(Rejected("no such overload")),
        ),
        rule("null_is_there", "has(claims.nul)", User("hub:jane"), None),
        rule(
            "type_of_claims",
            "type(claims) == map",
            User("hub:jane"),
            Some(Rejected("failed: ")),
        ),
        rule(
            "distinct_since_1_34",
            "[1, 1].distinct().size() == 1",
            Refused("undeclared reference to 'distinct'"),
            Some(User("hub:jane")),
        ),
        rule(
            "no_bind",
            "cel.bind(x, 1, x == 1)",
            Refused("undeclared reference to"),
            None,
        ),
        rule(
            "cost",
            "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, \
             [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, \
             [0,1,2,3,4,5,6,7,8,9].all(e, a+b+c+d+e >= 0)))))",
            Rejected("operation cancelled: actual cost limit exceeded"),
            None,
        ),
        Fact::everywhere(
            "errors_before_false",
            claims(with(
                "jwt.0.claimValidationRules",
                Node::raw("[{expression: 'false'}, {expression: claims.zzz == 1}]"),
            )),
            Rejected("resulted in error: no such key: zzz"),
        ),
        Fact::everywhere(
            "an_empty_name",
            claims(with(
                "jwt.0.claimMappings.username",
                Node::raw("{expression: \"''\"}"),
            )),
            Rejected("oidc: empty username via CEL expression is not allowed"),
        ),
        Fact::everywhere(
            "a_null_name",
            claims(with(
                "jwt.0.claimMappings.username",
                Node::raw("{expression: claims.nul}"),
            )),
            Rejected("username claim expression must return a string"),
        ),
        Fact::everywhere(
            "no_empty_groups",
            claims(with(
                "jwt.0.claimMappings.groups",
                Node::raw("{expression: \"['a', '', 'b']\"}"),
            )),
            Groups("a|b"),
        ),
        Fact::everywhere(
            "the_masters",
            claims(with(
                "jwt.0.claimMappings.groups",
                Node::raw("{expression: \"'system:masters'\"}"),
            )),
            Groups("system:masters"),
        ),
        Fact::everywhere(
            "a_missing_extra",
            claims(with(
                "jwt.0.claimMappings.extra",
                Node::raw("[{key: a.b/c, valueExpression: claims.zzz}]"),
            )),
            Rejected("expression 'claims.zzz' resulted in error: no such key: zzz"),
        ),
        Fact::everywhere(
            "users_sum",
            claims(with(
                "jwt.0.userValidationRules",
                Node::raw(
                    "[{expression: \"user.username == 'hub:jane' && user.uid == '' && \
                     has(user.uid)\"}]",
                ),
            )),
            User("hub:jane"),
        ),
    ]
}

/// A fact about a rule's expression. `since` gives the answer of newer releases when it differs.
fn rule(name: &'static str, expression: &str, before: Expected, since: Option<Expected>) -> Fact {
    let rules = Node::List(vec![Node::map([("expression", Node::text(expression))])]);
    let case = claims(with("jwt.0.claimValidationRules", rules));
    let since = since.unwrap_or_else(|| before.clone());
    Fact::skewed(name, case, before, since)
}

fn claims(mut case: Case) -> Case {
    case.claim("groups", "[\"a\",\"b\"]");
    case.claim("email_verified", "true");
    case.claim("n", "5");
    case.claim("big", "1234567890123");
    case.claim("nul", "null");
    case.claim("kubernetes.io", "{\"namespace\":\"x\"}");
    case
}
