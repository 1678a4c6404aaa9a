//! The pages of a fleet in a real browser: accessibility, keyboard, width, and what they request.
//!
//! `KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test suites -- browser::the_picture` writes the
//! picture of the README.

mod stage;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::browser::ColorScheme;
use keyferry_integration::parts::Parts;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite, TestResult};
use serde_json::{Value, json};
use stage::{PAGES, REACH, Stage};
use tokio::process::Command;

const WIDE: u32 = 1280;
/// A page at 1280 px that is enlarged to 400 % (WCAG 2.2, success criterion 1.4.10).
const NARROW: u32 = 320;
const HEIGHT: u32 = 900;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .without_control_planes()
        .needs([Client::Axe, Client::Lighthouse].map(Needed::Client))
        // There is one window.
        .concurrent_tests(1)
        .limit(Duration::from_secs(600))
        .test("axe_finds_no_violation", axe_finds_no_violation)
        .test("lighthouse_scores_are_full", lighthouse_scores_are_full)
        .test(
            "the_keyboard_reaches_every_link",
            the_keyboard_reaches_every_link,
        )
        .test("no_page_scrolls_sideways", no_page_scrolls_sideways)
        .test("nothing_else_is_requested", nothing_else_is_requested)
        .test(
            "a_script_in_a_page_does_not_run",
            a_script_in_a_page_does_not_run,
        )
        .test("the_picture_of_the_readme", the_picture_of_the_readme)
        .boxed()
}

/// Runs axe's rules, and returns the number of those that hold and each that does not.
const RUN_AXE: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document).then(result => done({
        rules: result.passes.length,
        violations: result.violations.map(rule => rule.id + ': ' +
            rule.nodes.map(node => node.html + ' ' + node.failureSummary).slice(0, 3).join(' | ')),
    }), error => done({ violations: [String(error)] }));";

async fn axe_finds_no_violation(stage: Arc<Stage>) -> TestResult {
    let axe = std::fs::read_to_string(&stage.axe)?;
    // A page without its language shows that axe would find something.
    stage.show("sample/fleet", WIDE, ColorScheme::Light).await?;
    stage.browser.execute(&axe).await?;
    let spoil = "document.documentElement.removeAttribute('lang');";
    stage.browser.execute(spoil).await?;
    let result = stage.browser.execute_async(RUN_AXE).await?;
    assert!(result.to_string().contains("html-has-lang"), "{result}");
    let mut violations = Vec::new();
    let mut runs = 0;
    for page in PAGES {
        for width in [WIDE, NARROW] {
            for scheme in [ColorScheme::Light, ColorScheme::Dark] {
                stage.show(page, width, scheme).await?;
                stage.browser.execute(&axe).await?;
                let result = stage.browser.execute_async(RUN_AXE).await?;
                let listed = result["violations"].as_array().ok_or("axe said nothing")?;
                violations.extend(
                    listed
                        .iter()
                        .map(|rule| format!("{page} {width} {scheme:?}: {rule}")),
                );
                let rules = result["rules"].as_u64().unwrap_or_default();
                assert!(
                    rules > 10 || !listed.is_empty(),
                    "{page}: axe checked {rules} rules"
                );
                runs += 1;
            }
        }
    }
    eprintln!(
        "axe: {runs} runs on {} pages, {} violations",
        PAGES.len(),
        violations.len()
    );
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    Ok(())
}

/// Each page once: Lighthouse takes ten seconds for one.
async fn lighthouse_scores_are_full(stage: Arc<Stage>) -> TestResult {
    let pages = PAGES.into_iter().filter(|page| {
        *page == REACH
            || page.starts_with("sample/") && !page.contains('?') && *page != "sample/nowhere"
    });
    let urls: Vec<String> = pages.map(|page| stage.url(page)).collect();
    let lighthouse = Parts::from_environment()
        .install(Client::Lighthouse)
        .await?;
    let output = Command::new(&lighthouse.program)
        .args(&lighthouse.arguments)
        .args(&urls)
        .env("CHROME_PATH", stage.browser.program())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let printed = String::from_utf8(output.stdout)?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(printed.lines().count(), urls.len(), "{printed}{errors}");
    for line in printed.lines() {
        let result: Value = serde_json::from_str(line)?;
        let full = json!({ "accessibility": 1, "best-practices": 1 });
        assert_eq!(result["scores"], full, "{line}");
    }
    eprintln!(
        "lighthouse: accessibility and best practices 100 on {} pages",
        urls.len()
    );
    Ok(())
}

/// The controls that a reader without a pointer has to reach, each with a number.
const NUMBER_CONTROLS: &str = "
    const all = document.querySelectorAll('a[href], button, select, input:not([type=hidden])');
    const shown = [...all].filter(element => element.checkVisibility());
    shown.forEach((element, index) => element.setAttribute('data-control', index));
    document.activeElement.blur();
    return shown.length;";

/// Which control has the focus, and whether it is seen to have it.
const FOCUSED_CONTROL: &str = "
    const element = document.activeElement;
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    return {
        control: element.getAttribute('data-control'),
        text: element.textContent.trim() || element.name,
        seen: element.matches(':focus-visible') && style.outlineStyle !== 'none'
            && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.height > 0
            && box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth,
    };";

async fn the_keyboard_reaches_every_link(stage: Arc<Stage>) -> TestResult {
    let mut reached_controls = 0;
    for page in PAGES {
        for width in [WIDE, NARROW] {
            stage.show(page, width, ColorScheme::Light).await?;
            let controls = stage
                .browser
                .execute(NUMBER_CONTROLS)
                .await?
                .as_u64()
                .ok_or("no count")?;
            let mut reached = BTreeSet::new();
            // Some more, because the focus may begin at the browser's own controls.
            for _ in 0..controls + 3 {
                stage.browser.press_tab().await?;
                let focused = stage.browser.execute(FOCUSED_CONTROL).await?;
                let Some(control) = focused["control"].as_str() else {
                    continue;
                };
                assert_eq!(
                    focused["seen"], true,
                    "{page} at {width}: {}",
                    focused["text"]
                );
                reached.insert(control.to_owned());
            }
            assert_eq!(
                reached.len() as u64,
                controls,
                "{page} at {width}: {reached:?}"
            );
            assert!(page == REACH || controls > 5, "{page} has its navigation");
            reached_controls += controls;
        }
    }
    eprintln!("keyboard: {reached_controls} controls reached, each with a visible focus");
    Ok(())
}

async fn no_page_scrolls_sideways(stage: Arc<Stage>) -> TestResult {
    for page in PAGES {
        for width in [WIDE, 1000, 900, 600, NARROW] {
            stage.show(page, width, ColorScheme::Light).await?;
            let measure = "return document.documentElement.scrollWidth;";
            let found = stage.browser.execute(measure).await?;
            assert!(
                found.as_u64() <= Some(u64::from(width)),
                "{page}: {found} of {width} px"
            );
        }
    }
    Ok(())
}

async fn nothing_else_is_requested(stage: Arc<Stage>) -> TestResult {
    stage.browser.requested_urls().await?;
    let before = stage.requests().len();
    let mut opened = Vec::new();
    for page in PAGES {
        stage.show(page, WIDE, ColorScheme::Light).await?;
        opened.push(stage.url(page));
        let parts = "return performance.getEntriesByType('resource').map(entry => entry.name);";
        assert_eq!(
            stage.browser.execute(parts).await?,
            Value::Array(Vec::new()),
            "{page}"
        );
    }
    let requested = stage.browser.requested_urls().await?;
    assert_eq!(requested, opened, "each page is one request");
    let served = stage.requests().split_off(before);
    assert_eq!(
        served.len(),
        opened.len(),
        "the server was asked for {served:?}"
    );
    Ok(())
}

/// The policy is real: the same script does nothing in a page, and works for a test.
async fn a_script_in_a_page_does_not_run(stage: Arc<Stage>) -> TestResult {
    stage.show("sample/fleet", WIDE, ColorScheme::Light).await?;
    let insert = "
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        document.body.append(script);
        document.body.setAttribute('onclick', 'window.ran = true');
        document.body.click();
        const paragraph = document.createElement('p');
        paragraph.setAttribute('style', 'position: fixed');
        document.body.append(paragraph);
        return [window.ran === true, getComputedStyle(paragraph).position];";
    for page in ["sample/fleet", "sample/file"] {
        stage.show(page, WIDE, ColorScheme::Light).await?;
        let result = stage.browser.execute(insert).await?;
        assert_eq!(result, json!([false, "static"]), "{page}");
    }
    Ok(())
}

async fn the_picture_of_the_readme(stage: Arc<Stage>) -> TestResult {
    const MAX_BYTES: usize = 200 << 10;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images/fleet.png");
    stage.show("sample/fleet", WIDE, ColorScheme::Light).await?;
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        std::fs::write(&file, stage.browser.screenshot().await?)?;
    }
    let image = std::fs::read(&file).map_err(|error| {
        format!(
            "{}: {error}; fix: KEYFERRY_WRITE_COPIES=1 writes it",
            file.display()
        )
    })?;
    assert!(image.starts_with(b"\x89PNG\r\n"), "it is a PNG");
    assert!(image.len() <= MAX_BYTES, "{} bytes", image.len());
    assert_eq!(
        image.get(16..20),
        Some(WIDE.to_be_bytes().as_slice()),
        "its width"
    );
    Ok(())
}
