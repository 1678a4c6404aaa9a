//! The budget of each kind, as the documentation prints it.

use std::fmt::Write;

use crate::cost::{Cost, KIB};

const MIB: usize = 1024 * KIB;

/// What a number of things of one kind, each in its largest form, cost a replica at most.
pub(crate) struct Budget {
    /// What the tenant writes.
    pub(crate) kind: &'static str,
    /// How many, and how large each is.
    form: &'static str,
    /// What limits their number.
    limit: &'static str,
    /// The most that they cost together.
    pub(crate) bound: Cost,
}

const fn cost(peak: usize, kept: usize, hub_calls: usize, audit_bytes: usize) -> Cost {
    Cost {
        peak,
        kept,
        hub_calls,
        audit_bytes,
    }
}

/// The rows of the table.
pub(crate) const BUDGETS: [Budget; 13] = [
    Budget {
        kind: "ServiceAccount",
        form: "20 of 1.5 MiB",
        limit: "a quota of the hub",
        bound: cost(2 * MIB, 20 * KIB, 16, 0),
    },
    Budget {
        kind: "Namespace",
        form: "20 of 1.5 MiB, with 64 KiB of guarded labels",
        limit: "the hub's admin",
        bound: cost(10 * MIB, 8 * MIB, 16, 0),
    },
    Budget {
        kind: "TargetAccess",
        form: "256, each with the largest spec",
        limit: "the shipped quota",
        bound: cost(48 * MIB, 24 * MIB, 16, 0),
    },
    Budget {
        kind: "TargetAccess, too large",
        form: "256",
        limit: "the shipped quota",
        bound: cost(4 * MIB, MIB, 16, 0),
    },
    Budget {
        kind: "Secret or ConfigMap, of a delivery",
        form: "4 of 3 MiB as JSON",
        limit: "reconciliations at once: 4 of a namespace, 16 in all",
        bound: cost(24 * MIB, 16 * KIB, 4, 0),
    },
    Budget {
        kind: "Kustomization or HelmRelease",
        form: "20 of 1.5 MiB",
        limit: "500 are read of a kind",
        bound: cost(2 * MIB, 16 * KIB, 16, 0),
    },
    Budget {
        kind: "CertificateSigningRequest",
        form: "20 of 1.5 MiB",
        limit: "30 s of reading",
        bound: cost(2 * MIB, 16 * KIB, 16, 0),
    },
    Budget {
        kind: "request, forged token",
        form: "300 of 8 KiB",
        limit: "100 a second of an address",
        bound: cost(256 * KIB, 16 * KIB, 0, 160 * KIB),
    },
    Budget {
        kind: "request, denied",
        form: "300 at once",
        limit: "60 records, then 20 a second",
        bound: cost(MIB, 16 * KIB, 0, 64 * KIB),
    },
    Budget {
        kind: "request, new token each",
        form: "300",
        limit: "100 new tokens a second of a namespace, 20,000 cached reviews",
        bound: cost(2 * MIB, MIB, 305, 700 * KIB),
    },
    Budget {
        kind: "request, new access each",
        form: "50",
        limit: "1,000 cached tokens of a namespace",
        bound: cost(MIB, 512 * KIB, 155, 128 * KIB),
    },
    Budget {
        kind: "`keyferry fleet`: TargetAccess",
        form: "10 of 1.5 MiB",
        limit: "256 MiB of text",
        bound: cost(3 * MIB, MIB, 0, 0),
    },
    Budget {
        kind: "`keyferry who-can`: ServiceAccount",
        form: "10 of 1.5 MiB",
        limit: "256 MiB of text",
        bound: cost(4 * MIB, 16 * KIB, 0, 0),
    },
];

/// An amount of memory or text, in the largest unit that it fills.
fn amount(bytes: usize) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes if bytes >= MIB && bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        bytes => format!("{} KiB", bytes.div_ceil(KIB)),
    }
}

/// The table of the documentation.
pub(crate) fn render_table() -> String {
    let mut table = "| kind | of these | their number is limited by | peak | kept | calls of the hub | audit log |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    for Budget {
        kind,
        form,
        limit,
        bound,
    } in &BUDGETS
    {
        writeln!(
            table,
            "| {kind} | {form} | {limit} | {} | {} | {} | {} |",
            amount(bound.peak),
            amount(bound.kept),
            bound.hub_calls,
            amount(bound.audit_bytes),
        )
        .unwrap();
    }
    table
}
