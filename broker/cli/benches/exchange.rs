//! The benchmarks: `cargo bench -p keyferry --bench exchange`, with `-- --markdown` for the text of
//! `docs/development/benchmarks.md`.
//!
//! Everything is on loopback, limited in count and time, and ends by itself in less than three
//! minutes. The server under test is the one that `keyferry serve` runs, in this process. The load
//! comes from this binary as a child process, so that the server's own CPU time can be measured
//! alone.

#![allow(unreachable_pub, reason = "a benchmark has no outside")]

mod exchange {
    pub mod answer_time;
    pub mod driver;
    pub mod figures;
    pub mod generator;
    pub mod hub_load;
    pub mod keyferry_process;
    pub mod memory;
    pub mod plot;
    pub mod policy;
    pub mod process;
    pub mod report;
    pub mod simulated_hub;
    pub mod slow_mint;
    pub mod spread;
    pub mod stage;
    pub mod stampede;
    pub mod table;
    pub mod throughput;
    pub mod tls_connection;
    pub mod window;
}

use std::path::Path;
use std::process::ExitCode;

use exchange::figures::Figures;
use exchange::stage::Stage;
use exchange::{driver, hub_load, memory, plot, process, report, slow_mint, stampede, throughput};

/// The result of a benchmark step. Any error ends the benchmark with its message.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let outcome = if has(driver::LOAD) {
        exchange::generator::main()
    } else if has(driver::STAMPEDE) {
        stampede::main()
    } else if has("--bench") {
        measure(has("--markdown"))
    } else {
        // `cargo test --all-targets` also starts benchmarks, without this argument.
        process::say("nothing is measured without `cargo bench`\n")
    };
    process::exit(outcome)
}

fn measure(markdown: bool) -> Outcome<()> {
    // The same runtime as `keyferry serve`.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let figures = runtime.block_on(all())?;
    plot::write_all(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/development/benchmarks"),
        &figures,
    )?;
    process::say(&if markdown {
        report::markdown(&figures)
    } else {
        report::text(&figures)
    })
}

async fn all() -> Outcome<Figures> {
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
