//! Asks the authenticator of the next kube-apiserver, an alpha of 1.38, what the other oracles are
//! asked. It may differ from 1.37 only in what `docs/development/conformance.md` lists.

use std::time::Duration;

use keyferry_integration::differential;
use keyferry_integration::oracle::Oracles;
use keyferry_integration::parts::{OracleRelease, Part};
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(|| Oracles::of(&[OracleRelease::V0_38]))
        .needs([Needed::Part(Part::Oracle(OracleRelease::V0_38))])
        .limit(Duration::from_secs(600))
        .test("it_differs_as_written", |oracles| async move {
            differential::next_release(&oracles).await
        })
        .boxed()
}
