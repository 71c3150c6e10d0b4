//! `waypost check`: says whether a file can be used, and everything that is wrong with it.
//!
//! Must not know: the command line, the terminal. It returns what is to be printed.

use std::path::Path;

use crate::config::{self, Config, Problem};

/// What is to be printed if the file is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// One line.
    Summary,
    /// Every key with its value and where that came from, as YAML.
    Effective,
}

/// What is to be printed, and how the program ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// For stdout.
    pub stdout: String,
    /// For stderr: problems and warnings.
    pub stderr: String,
    /// 0 if the file can be used, else 1.
    pub code: u8,
}

impl Report {
    /// Something that was asked for and is there.
    pub(super) fn of(stdout: String) -> Self {
        Self { stdout, stderr: String::new(), code: 0 }
    }
}

/// Checks a file. `env` gives the variables. Nothing is started, nothing listens.
#[must_use]
pub fn check(path: &Path, output: Output, env: &dyn Fn(&str) -> Option<String>) -> Report {
    match config::load(path, env) {
        Ok(loaded) => {
            let stdout = match output {
                Output::Summary => summary(path, &loaded.config),
                Output::Effective => loaded.effective.to_yaml(),
            };
            Report { stdout, stderr: join(&loaded.warnings), code: 0 }
        }
        Err(problems) => {
            let stderr = format!("{problems}\n{}: {}\n", path.display(), problems.summary());
            Report { stdout: String::new(), stderr, code: 1 }
        }
    }
}

fn summary(path: &Path, config: &Config) -> String {
    let clients = config.clients.iter().filter(|client| !client.is_anonymous).count();
    let anonymous = if clients < config.clients.len() { ", anonymous" } else { "" };
    let upstreams = counted(config.upstreams.len(), "upstream");
    format!("{}: ok ({upstreams}, {}{anonymous})\n", path.display(), counted(clients, "client"))
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn join(warnings: &[Problem]) -> String {
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    warnings.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, output: Output) -> (String, Report) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        std::fs::write(&path, text).unwrap();
        (path.display().to_string(), check(&path, output, &|_| None))
    }

    #[test]
    fn a_good_file_is_one_line_and_zero() {
        let (path, report) = report("upstreams: {a: {command: x}, b: {command: y}}\n", Output::Summary);
        assert_eq!(
            report,
            Report {
                stdout: format!("{path}: ok (2 upstreams, 0 clients, anonymous)\n"),
                stderr: String::new(),
                code: 0
            }
        );
    }

    #[test]
    fn a_bad_file_is_problems_on_stderr_and_one() {
        let (path, report) = report("upstreams: {}\nlisten: x\npage_size: y\n", Output::Effective);
        assert_eq!((report.stdout.as_str(), report.code), ("", 1));
        assert!(report.stderr.contains(&format!("--> {path}:2:9")), "{}", report.stderr);
        assert!(report.stderr.ends_with(&format!("\n{path}: 2 errors\n")), "{}", report.stderr);
    }

    #[test]
    fn warnings_do_not_fail() {
        let (_, report) =
            report("upstreams: {a: {command: x, prefix: p}, b: {command: y, prefix: p}}\n", Output::Summary);
        assert_eq!(report.code, 0);
        assert!(report.stderr.starts_with("warning: `a` and `b` have the same prefix"), "{}", report.stderr);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let report = check(Path::new("nowhere/gateway.yaml"), Output::Summary, &|_| None);
        assert_eq!(report.code, 1);
        assert!(report.stderr.starts_with("error: cannot read nowhere/gateway.yaml: "), "{}", report.stderr);
        assert!(report.stderr.contains("--config FILE"), "{}", report.stderr);
    }
}
