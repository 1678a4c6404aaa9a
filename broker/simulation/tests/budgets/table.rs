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
pub(crate) const BUDGETS: [Budget; 16] = [
    Budget {
        kind: "ServiceAccount",
        form: "10 of 1.5 MiB",
        limit: "a quota of the hub",
        bound: cost(2 * MIB, 16 * KIB, 16, 0),
    },
    Budget {
        kind: "Namespace",
        form: "10 of 1.5 MiB, with 64 KiB of guarded labels",
        limit: "the hub's admin",
        bound: cost(6 * MIB, 4 * MIB, 16, 0),
    },
    Budget {
        kind: "TargetAccess",
        form: "256, each with the largest spec",
        limit: "the shipped quota",
        bound: cost(32 * MIB, 16 * MIB, 16, 0),
    },
    Budget {
        kind: "TargetAccess, too large",
        form: "256",
        limit: "the shipped quota",
        bound: cost(4 * MIB, MIB, 16, 0),
    },
    Budget {
        kind: "TargetAccess, reconciled",
        form: "10 with 16 Secrets",
        limit: "reconciliations at once: 4 of a namespace, 16 in all",
        bound: cost(6 * MIB, 3 * MIB, 400, 96 * KIB),
    },
    Budget {
        kind: "Secret or ConfigMap, of a delivery",
        form: "4 of 3 MiB as JSON",
        limit: "reconciliations at once: 4 of a namespace, 16 in all",
        bound: cost(24 * MIB, 16 * KIB, 4, 0),
    },
    Budget {
        kind: "Kustomization or HelmRelease",
        form: "2 of 1.5 MiB",
        limit: "500 are read of a kind",
        bound: cost(2 * MIB, 16 * KIB, 4, 0),
    },
    Budget {
        kind: "CertificateSigningRequest",
        form: "2 of 1.5 MiB",
        limit: "30 s of reading",
        bound: cost(2 * MIB, 16 * KIB, 4, 0),
    },
    Budget {
        kind: "request, largest form",
        form: "300 of 64 KiB at once",
        limit: "24 MiB of bodies of an address",
        bound: cost(20 * MIB, 16 * KIB, 0, 0),
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
        kind: "connection",
        form: "256, each with 31 KiB of a head and a certificate chain of 7 KiB",
        limit: "256 of an address",
        bound: cost(20 * MIB, 20 * MIB, 0, 0),
    },
    Budget {
        kind: "`keyferry fleet`: TargetAccess",
        form: "10 of 1.5 MiB",
        limit: "256 MiB of text",
        bound: cost(2 * MIB, MIB, 0, 0),
    },
    Budget {
        kind: "`keyferry who-can`: ServiceAccount",
        form: "10 of 1.5 MiB",
        limit: "256 MiB of text",
        bound: cost(4 * MIB, 16 * KIB, 0, 0),
    },
];

/// An amount of memory or text, rounded up.
fn amount(bytes: usize) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes if bytes >= 8 * MIB || bytes >= MIB && bytes.is_multiple_of(MIB) => {
            format!("{} MiB", bytes.div_ceil(MIB))
        }
        bytes => format!("{} KiB", bytes.div_ceil(KIB)),
    }
}

/// The columns of a cost.
fn cost_columns(cost: &Cost) -> String {
    format!(
        "{} | {} | {} | {} |",
        amount(cost.peak),
        amount(cost.kept),
        cost.hub_calls,
        amount(cost.audit_bytes)
    )
}

/// The table of the documentation. What commands read costs no replica, and is not in the sum.
pub(crate) fn render_table() -> String {
    let mut table = "| kind | of these | their number is limited by | peak | kept | calls of the hub | audit log |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut sum = cost(0, 0, 0, 0);
    for Budget {
        kind,
        form,
        limit,
        bound,
    } in &BUDGETS
    {
        let columns = cost_columns(bound);
        writeln!(table, "| {kind} | {form} | {limit} | {columns}").unwrap();
        if !kind.starts_with('`') {
            sum = sum.plus(bound);
        }
    }
    writeln!(
        table,
        "| all of these at a replica | | | {}",
        cost_columns(&sum)
    )
    .unwrap();
    table
}
