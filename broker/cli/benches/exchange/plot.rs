//! Writes bar charts as SVG without a library: one bar for each subject, with a line from the
//! minimum to the maximum.

use std::fmt::Write;
use std::path::Path;

use super::figures::Figures;
use super::spread::Spread;
use crate::Outcome;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 360.0;
const VALUES: f64 = 90.0;
const BAR: f64 = 22.0;
const STEP: f64 = 34.0;
const TOP: f64 = 48.0;

struct Chart<'a> {
    title: &'a str,
    bars: Vec<(&'a str, Spread, bool)>,
    decimals: usize,
}

/// Writes every chart into `folder`.
pub fn write_all(folder: &Path, figures: &Figures) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let bars = |of: fn(&super::throughput::Subject) -> Option<Spread>| {
        let bar = |subject| Some((subject, of(subject)?));
        let bars = figures.throughput.iter().filter_map(bar);
        bars.map(|(subject, spread)| (subject.name, spread, subject.empty.is_none()))
            .collect::<Vec<_>>()
    };
    let rates = Chart {
        title: "Requests a second, 64 connections (more is better)",
        bars: bars(|it| it.rate()),
        decimals: 0,
    };
    let cpu = Chart {
        title: "Server CPU microseconds a request (less is better)",
        bars: bars(|it| it.cpu()),
        decimals: 1,
    };
    std::fs::write(folder.join("requests.svg"), rates.svg())?;
    if !cpu.bars.is_empty() {
        std::fs::write(folder.join("cpu.svg"), cpu.svg())?;
    }
    Ok(())
}

impl Chart<'_> {
    fn svg(&self) -> String {
        let height = TOP + STEP * self.bars.len() as f64 + 12.0;
        let most = self
            .bars
            .iter()
            .map(|(_, spread, _)| spread.most)
            .fold(f64::MIN_POSITIVE, f64::max);
        let length = |value: f64| value / most * (WIDTH - LABELS - VALUES);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"bold\" fill=\"#1f2328\">{}</text>\n",
            self.title
        );
        for (index, (name, spread, is_empty)) in self.bars.iter().enumerate() {
            let (top, colour) = (
                TOP + STEP * index as f64,
                if *is_empty { "#8c959f" } else { "#0969da" },
            );
            let (middle, text) = (top + BAR / 2.0, top + BAR / 2.0 + 5.0);
            let (least, most) = (LABELS + length(spread.least), LABELS + length(spread.most));
            let value = format!("{:.*}", self.decimals, spread.median);
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\" fill=\"#1f2328\">{name}</text>\n\
                 <rect x=\"{LABELS:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n\
                 <line x1=\"{least:.1}\" y1=\"{middle:.1}\" x2=\"{most:.1}\" y2=\"{middle:.1}\" stroke=\"#1f2328\" stroke-width=\"2\"/>\n\
                 <text x=\"{:.1}\" y=\"{text:.1}\" fill=\"#1f2328\">{value}</text>\n",
                LABELS - 10.0,
                length(spread.median),
                most + 8.0,
            );
        }
        svg + "</svg>\n"
    }
}
