//! The benchmarks: `cargo bench -p keyferry --bench exchange`, with `-- --markdown` for the text of
//! `docs/development/benchmarks.md`.
//!
//! Everything is on loopback, limited in count and time, and ends by itself in less than three
//! minutes. The server under test is the one that `keyferry serve` runs, in this process. The load
//! comes from this binary as a child process, so that the server's own CPU time can be measured
//! alone.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

#[path = "harness/harness.rs"]
mod harness;

mod exchange {
    pub mod figures;
    pub mod generator;
    pub mod hub_load;
    pub mod interleaving;
    pub mod memory;
    pub mod report;
    pub mod simulated_hub;
    pub mod slow_mint;
    pub mod stampede;
    pub mod throughput;
}

use std::process::ExitCode;

use exchange::figures::Figures;
use exchange::{generator, hub_load, memory, report, slow_mint, stampede, throughput};
use harness::stage::Stage;
use harness::{Outcome, process};

fn main() -> ExitCode {
    let children: [harness::Child; 2] = [
        (generator::LOAD, generator::main),
        (stampede::STAMPEDE, stampede::main),
    ];
    harness::run("exchange", &children, |_| {
        Ok(report::of(&harness::block_on(measure_all())?))
    })
}

async fn measure_all() -> Outcome<Figures> {
    let machine = process::machine();
    let stage = Stage::start().await?;
    process::complain("throughput ...\n")?;
    let throughput = throughput::measure(&stage).await?;
    process::complain("a stampede ...\n")?;
    let stampede = stampede::measure(&stage).await?;
    process::complain("a slow mint ...\n")?;
    let slow_mint = slow_mint::measure(&stage).await?;
    stage.stop().await?;
    process::complain("memory ...\n")?;
    let memory = memory::measure().await?;
    process::complain("load on the hub ...\n")?;
    let hub_load = hub_load::measure().await?;
    Ok(Figures {
        machine,
        throughput,
        stampede,
        slow_mint,
        memory,
        hub_load,
    })
}
