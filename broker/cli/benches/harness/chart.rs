//! Writes bar charts as SVG without a library: one bar for each subject, with a line from the
//! minimum to the maximum, and marks on it.

use std::fmt::Write;

use super::spread::Spread;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 360.0;
const VALUES: f64 = 90.0;
const BAR: f64 = 22.0;
const STEP: f64 = 34.0;
const TOP: f64 = 48.0;

/// A bar chart, with the name of its file.
pub struct Chart {
    /// The name of the file beside the published tables.
    pub file: &'static str,
    /// The title, with the unit.
    pub title: &'static str,
    /// One bar for each measured subject.
    pub bars: Vec<Bar>,
    /// The decimals of the printed median.
    pub decimals: usize,
}

/// A bar.
pub struct Bar {
    /// The name of the subject.
    pub name: &'static str,
    /// Its figure.
    pub spread: Spread,
    /// Figures between the median and the maximum, such as the 99th percentile.
    pub marks: Vec<f64>,
    /// Whether others are compared with it.
    pub is_peer: bool,
}

impl Chart {
    /// The chart as an SVG document.
    pub fn svg(&self) -> String {
        let height = TOP + STEP * self.bars.len() as f64 + 12.0;
        let most = self
            .bars
            .iter()
            .map(|bar| bar.spread.most)
            .fold(f64::MIN_POSITIVE, f64::max);
        let length = |value: f64| value / most * (WIDTH - LABELS - VALUES);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"bold\" fill=\"#1f2328\">{}</text>\n",
            self.title
        );
        for (index, bar) in self.bars.iter().enumerate() {
            let Bar {
                name,
                spread,
                marks,
                is_peer,
            } = bar;
            let (top, colour) = (
                TOP + STEP * index as f64,
                if *is_peer { "#8c959f" } else { "#0969da" },
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
            for mark in marks.iter().map(|mark| LABELS + length(*mark)) {
                let _ = writeln!(
                    svg,
                    "<line x1=\"{mark:.1}\" y1=\"{:.1}\" x2=\"{mark:.1}\" y2=\"{:.1}\" stroke=\"#1f2328\" stroke-width=\"2\"/>",
                    middle - 6.0,
                    middle + 6.0,
                );
            }
        }
        svg + "</svg>\n"
    }
}
