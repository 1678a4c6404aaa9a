//! The steps that a run has done so far. If the hub or the target stops answering, the run ends and
//! prints where it stopped and which command continues.

use crate::ui;

/// The steps of a run and the objects that it has written.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    step: Option<&'static str>,
    applied: Vec<String>,
    left: Vec<String>,
}

impl Progress {
    /// Begins a step.
    pub(crate) fn begin(&mut self, step: &'static str) {
        self.step = Some(step);
    }

    /// Records an object that was applied or deleted, with its outcome.
    pub(crate) fn applied(&mut self, object: String) {
        self.applied.push(object);
    }

    /// Records what this command has shown and cannot do itself.
    pub(crate) fn leave(&mut self, what: String) {
        self.left.push(what);
    }

    /// Forgets what is left to do, once a token has proven that it is done.
    pub(crate) fn done(&mut self, is_done: impl Fn(&str) -> bool) {
        self.left.retain(|what| !is_done(what));
    }

    /// Prints what is left to do, at the end of a run.
    pub(crate) fn report_left(&self) {
        if !self.left.is_empty() {
            ui::note_block(&format!("left to do:\n- {}", self.left.join("\n- ")));
        }
    }

    /// Prints where the run stopped, after its error.
    pub(crate) fn report(&self) {
        // A path may have other bytes than UTF-8.
        let words: Vec<String> = std::env::args_os()
            .skip(1)
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        if let Some(text) = self.described(&words) {
            ui::note_block(&text);
        }
    }

    /// Describes where the run stopped, and the command that continues. `words` are the arguments
    /// of this run. `None` before the first step.
    fn described(&self, words: &[String]) -> Option<String> {
        let step = self.step?;
        let applied = if self.applied.is_empty() {
            "nothing".to_owned()
        } else {
            self.applied.join(", ")
        };
        let words = words.iter().map(String::as_str);
        // The words have no NUL, which no process can be given as an argument.
        let command = shlex::try_join(words).unwrap_or_default();
        Some(format!(
            "stopped at: {step}\ndone so far: {applied}\nnext: the same command, which leaves \
             what is in place as it is: keyferry {command}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn a_run_that_stops_names_its_step_and_the_command_that_goes_on() {
        let words = ["onboard", "target", "prod", "--target-kubeconfig", "a b"].map(str::to_owned);
        let mut progress = Progress::default();
        assert_eq!(progress.described(&words), None, "nothing was begun");
        progress.begin("applying the objects of the hub");
        let early = progress.described(&words).unwrap_or_default();
        assert!(early.contains("done so far: nothing\n"), "{early}");
        progress.applied("Secret prod-ca in keyferry-system created".to_owned());
        progress.applied("TargetCluster prod created".to_owned());
        assert_eq!(
            progress.described(&words).unwrap_or_default(),
            "stopped at: applying the objects of the hub\ndone so far: Secret prod-ca in \
             keyferry-system created, TargetCluster prod created\nnext: the same command, which \
             leaves what is in place as it is: keyferry onboard target prod --target-kubeconfig \
             'a b'"
        );
    }
}
