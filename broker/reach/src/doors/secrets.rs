//! Door 5: who may read Secrets gets the tokens in them: those that Keyferry delivered, and those
//! that the hub writes for a ServiceAccount. Door 11 is beside it: Keyferry's own Secrets.

use crate::accounts::AccountSet;
use crate::doubt::Doubt;
use crate::edge::{Edge, Reached};
use crate::granted::{Granted, Scope};
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::right::{Names, Right};
use crate::way::Hop;

const DOOR: u8 = 5;
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

impl<'w> HubSearch<'w> {
    pub(crate) fn read_secrets(&self, granted: &Granted<'w>, edges: &mut Vec<Edge>) {
        let readers = self.rules_with(granted, Right::ReadSecret);
        for (set, index, names) in &readers {
            let hops = set.hops(None, *index, DOOR);
            self.add_delivered(set.scope, *names, &hops, edges);
            self.add_account_tokens(set.scope, *names, &hops, edges);
        }
        for right in [Right::CreateSecret, Right::EditSecret] {
            for (set, index, names) in self.rules_with(granted, right) {
                let written = set.hops(None, index, DOOR);
                for (reader, read_index, read_names) in &readers {
                    let Some(scope) = set.scope.in_both(reader.scope) else {
                        continue;
                    };
                    let mut hops = written.clone();
                    hops.extend(reader.hops(None, *read_index, DOOR));
                    let named = |names: &Names<'_>| !matches!(names, Names::Only([]));
                    if right == Right::CreateSecret && names.allow_unnamed() && named(read_names) {
                        hops.push(Hop::note(format!(
                            "creates a Secret {TOKEN_TYPE}, which the hub fills, and reads it"
                        )));
                        let accounts = self.accounts.in_scope(scope);
                        edges.push(Edge::certain(Reached::Accounts(accounts), hops.clone()));
                        self.add_unread_accounts(scope, &hops, edges);
                    }
                    if right == Right::EditSecret && self.may_have_token_secret(scope) {
                        let doubt = Doubt::fact(
                            format!("it may change and read a Secret {TOKEN_TYPE}"),
                            "take one of the two rights away, or delete the Secret",
                        );
                        let accounts = self.accounts.in_scope(scope);
                        edges.push(Edge::doubtful(Reached::Accounts(accounts), hops, doubt));
                    }
                }
            }
        }
    }

    fn add_delivered(
        &self,
        scope: Scope<'w>,
        names: Names<'w>,
        hops: &[Hop],
        edges: &mut Vec<Edge>,
    ) {
        for (index, delivered) in self.delivered.iter().enumerate() {
            if !scope.has(&delivered.namespace) || !names.allow(&delivered.secret) {
                continue;
            }
            let mut hops = hops.to_vec();
            hops.push(Hop::note(format!(
                "Secret {}/{}",
                delivered.namespace, delivered.secret
            )));
            let reached = Reached::Delivered(index);
            match &delivered.doubt {
                Some(doubt) => edges.push(Edge::doubtful(reached, hops, doubt.clone())),
                None => edges.push(Edge::certain(reached, hops)),
            }
        }
        let lists = &self.world.hub.lists;
        let doubt = match scope {
            Scope::Namespace(namespace)
                if lists.is_whole_in(ListKind::TargetAccesses, namespace) =>
            {
                return;
            }
            Scope::Namespace(namespace) => Doubt::list_in(ListKind::TargetAccesses, namespace),
            _ if lists.is_whole(ListKind::TargetAccesses) => return,
            _ => Doubt::list(ListKind::TargetAccesses),
        };
        edges.push(Edge::doubtful(Reached::Anything, hops.to_vec(), doubt));
    }

    fn add_account_tokens(
        &self,
        scope: Scope<'w>,
        names: Names<'w>,
        hops: &[Hop],
        edges: &mut Vec<Edge>,
    ) {
        let hub = &self.world.hub;
        for ((namespace, name), secret) in hub.secrets.iter() {
            if !scope.has(namespace) || !names.allow(name) || secret.is_invalidated {
                continue;
            }
            let account = secret
                .account
                .as_deref()
                .and_then(|account| self.accounts.find(namespace, account));
            let Some(account) = account.map(AccountSet::One) else {
                continue;
            };
            let mut hops = hops.to_vec();
            hops.push(Hop::note(format!("Secret {namespace}/{name}")));
            match secret.secret_type.as_deref() {
                Some(TOKEN_TYPE) => edges.push(Edge::certain(Reached::Accounts(account), hops)),
                Some(_) => {}
                None => {
                    let doubt = Doubt::fact(
                        format!("the type of Secret {namespace}/{name} was not read"),
                        format!("kubectl get secret {name} -n {namespace} -o jsonpath={{.type}}"),
                    );
                    edges.push(Edge::doubtful(Reached::Accounts(account), hops, doubt));
                }
            }
        }
        if let Some(doubt) = self.unread_secrets(scope) {
            let accounts = self.accounts.in_scope(scope);
            edges.push(Edge::doubtful(
                Reached::Tokens(accounts),
                hops.to_vec(),
                doubt,
            ));
            self.add_unread_accounts(scope, hops, edges);
        }
    }

    fn unread_secrets(&self, scope: Scope<'w>) -> Option<Doubt> {
        let lists = &self.world.hub.lists;
        match scope {
            Scope::Namespace(namespace) => (!lists.is_whole_in(ListKind::Secrets, namespace))
                .then(|| Doubt::list_in(ListKind::Secrets, namespace)),
            _ => (!lists.is_whole(ListKind::Secrets)).then(|| Doubt::list(ListKind::Secrets)),
        }
    }

    fn may_have_token_secret(&self, scope: Scope<'w>) -> bool {
        let secrets = &self.world.hub.secrets;
        self.unread_secrets(scope).is_some()
            || secrets.iter().any(|((namespace, _), secret)| {
                scope.has(namespace)
                    && secret
                        .secret_type
                        .as_deref()
                        .is_none_or(|secret_type| secret_type == TOKEN_TYPE)
            })
    }
}
