//! The authenticator of kube-apiserver itself, as a child process that answers questions about
//! cases.

mod protocol;

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::parts::{OracleRelease, Part, PartError, Parts};
use crate::runner::{Fixture, NotStarted};
use protocol::ExpressionsQuestion;
pub use protocol::{
    Answer, AuthenticatorState, Document, OracleUser, OracleVerdict, Question, ValidationError,
};

pub(crate) use protocol::{Expression, Expressions};

/// Long enough for an expression that runs to its cost limit several times in one case.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Why an oracle did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// The program is unavailable.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The child process or a pipe to it failed.
    #[error("talk to the oracle {release}: {source}")]
    Pipe {
        /// The release.
        release: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line does not follow the protocol.
    #[error("the oracle {release} answered {line:?}: {source}")]
    Answer {
        /// The release.
        release: &'static str,
        /// The line.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An answer belongs to another case, or never arrived.
    #[error("the oracle {release} on case {id}: {why}")]
    Case {
        /// The release.
        release: &'static str,
        /// The case that was asked about.
        id: u64,
        /// What happened.
        why: String,
    },
}

/// One running oracle.
#[derive(Debug)]
pub struct Oracle {
    release: OracleRelease,
    pipes: Mutex<Pipes>,
    // The child is killed when this is dropped.
    _child: Child,
}

#[derive(Debug)]
struct Pipes {
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Oracle {
    /// Starts an oracle, and builds it first if no cache has it.
    pub async fn start(parts: &Parts, release: OracleRelease) -> Result<Self, OracleError> {
        let program = parts.locate(Part::Oracle(release)).await?;
        let pipe_error = |source| OracleError::Pipe {
            release: Part::Oracle(release).version(),
            source,
        };
        let mut child = Command::new(program)
            // The process is short-lived, so fewer garbage collections are faster.
            .env("GOGC", "400")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(pipe_error)?;
        let no_pipe = || pipe_error(std::io::Error::other("no pipe"));
        let questions = child.stdin.take().ok_or_else(no_pipe)?;
        let answers =
            BufReader::with_capacity(1 << 20, child.stdout.take().ok_or_else(no_pipe)?).lines();
        Ok(Self {
            release,
            pipes: Mutex::new(Pipes { questions, answers }),
            _child: child,
        })
    }

    /// The release that it answers for.
    pub fn release(&self) -> OracleRelease {
        self.release
    }

    /// Returns one answer for each question, in order.
    pub async fn ask(&self, questions: &[Question]) -> Result<Vec<Answer>, OracleError> {
        let ids: Vec<u64> = questions.iter().map(|question| question.id).collect();
        self.exchange(questions, &ids).await
    }

    /// Returns one observation for each expression, in order.
    pub(crate) async fn observe(
        &self,
        expressions: Expressions,
    ) -> Result<Vec<String>, OracleError> {
        let wanted = expressions.expressions.len();
        let question = ExpressionsQuestion {
            id: 0,
            observed: expressions,
        };
        let answer = self.exchange(&[question], &[0]).await?.pop();
        match answer {
            Some(answer) if answer.observations.len() == wanted => Ok(answer.observations),
            answer => Err(OracleError::Case {
                release: self.version(),
                id: 0,
                why: format!("{wanted} expressions, but {answer:?}"),
            }),
        }
    }

    async fn exchange<Q: serde::Serialize>(
        &self,
        questions: &[Q],
        ids: &[u64],
    ) -> Result<Vec<Answer>, OracleError> {
        let mut lines = Vec::new();
        for question in questions {
            serde_json::to_writer(&mut lines, question)
                .map_err(|error| self.pipe_error(error.into()))?;
            lines.push(b'\n');
        }
        let mut pipes = self.pipes.lock().await;
        let Pipes {
            questions: writer,
            answers: reader,
        } = &mut *pipes;
        // Write and read concurrently, because neither pipe can buffer everything.
        let write = async {
            writer
                .write_all(&lines)
                .await
                .map_err(|source| self.pipe_error(source))?;
            writer
                .flush()
                .await
                .map_err(|source| self.pipe_error(source))
        };
        let read = async {
            let mut answers = Vec::with_capacity(questions.len());
            for id in ids {
                answers.push(self.next_answer(reader, *id).await?);
            }
            Ok(answers)
        };
        let ((), answers) = tokio::try_join!(write, read)?;
        Ok(answers)
    }

    async fn next_answer(
        &self,
        reader: &mut Lines<BufReader<ChildStdout>>,
        id: u64,
    ) -> Result<Answer, OracleError> {
        let release = self.version();
        let line = tokio::time::timeout(ANSWERED_WITHIN, reader.next_line())
            .await
            .map_err(|_| OracleError::Case {
                release,
                id,
                why: format!("no answer within {} s", ANSWERED_WITHIN.as_secs()),
            })?
            .map_err(|source| self.pipe_error(source))?
            .ok_or_else(|| self.pipe_error(std::io::ErrorKind::UnexpectedEof.into()))?;
        let answer: Answer = serde_json::from_str(&line).map_err(|source| OracleError::Answer {
            release,
            line,
            source,
        })?;
        if answer.id != id {
            return Err(OracleError::Case {
                release,
                id,
                why: format!("the answer is of case {}", answer.id),
            });
        }
        Ok(answer)
    }

    fn version(&self) -> &'static str {
        Part::Oracle(self.release).version()
    }

    fn pipe_error(&self, source: std::io::Error) -> OracleError {
        OracleError::Pipe {
            release: self.version(),
            source,
        }
    }
}

/// Oracles of several releases.
#[derive(Debug)]
pub struct Oracles {
    all: Vec<Oracle>,
}

impl Oracles {
    /// Starts the oracles of every run, and builds those that no cache has.
    pub async fn start() -> Result<Self, NotStarted> {
        Self::of(&OracleRelease::ALL).await
    }

    /// Starts the oracles of these releases, and builds those that no cache has.
    pub async fn of(releases: &[OracleRelease]) -> Result<Self, NotStarted> {
        let parts = Parts::from_environment();
        let mut all = Vec::new();
        for &release in releases {
            match Oracle::start(&parts, release).await {
                Ok(oracle) => all.push(oracle),
                Err(OracleError::Part(part @ PartError::Unavailable { .. })) => {
                    return Err(NotStarted::Missing(part.to_string()));
                }
                Err(error) => return Err(NotStarted::failed(error)),
            }
        }
        Ok(Self { all })
    }

    /// The oracles, oldest release first.
    pub fn all(&self) -> &[Oracle] {
        &self.all
    }

    /// The answers of each oracle to the same questions, oldest release first.
    pub async fn ask(&self, questions: &[Question]) -> Result<Vec<Vec<Answer>>, OracleError> {
        futures::future::try_join_all(self.all.iter().map(|oracle| oracle.ask(questions))).await
    }
}

impl Fixture for Oracles {
    fn log_tails(&self) -> String {
        String::new()
    }
}
