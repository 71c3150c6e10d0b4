//! The Prometheus text format, read back.

use std::collections::BTreeMap;

/// One sample.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// All samples of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub Vec<Sample>);

impl Metrics {
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The samples of `name` that have all of `labels`.
    pub fn matching(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Sample> {
        let has = |sample: &Sample| {
            labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|found| found == value))
        };
        self.0.iter().filter(|sample| sample.name == name && has(sample)).collect()
    }

    /// The sum of the matching samples; 0 where there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).into_iter().map(|sample| sample.value).sum()
    }

    /// Whether there is such a sample.
    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        !self.matching(name, labels).is_empty()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    Some(Sample { name: name.to_owned(), labels: label_pairs(labels), value: value.trim().parse().ok()? })
}

fn label_pairs(mut rest: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some((key, tail)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = tail.char_indices();
        let mut end = tail.len();
        while let Some((at, letter)) = chars.next() {
            match letter {
                '\\' => value.extend(chars.next().map(|(_, next)| if next == 'n' { '\n' } else { next })),
                '"' => {
                    end = at + 1;
                    break;
                }
                other => value.push(other),
            }
        }
        found.insert(key.trim_start_matches(',').to_owned(), value);
        rest = &tail[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let text =
            "# HELP x y\nx_total{a=\"1\",b=\"q\\\"{}, \\\\\"} 3\nx_total{a=\"2\",b=\"\"} 4\nplain 1.5\n";
        let metrics = Metrics::parse(text);
        assert!((metrics.sum("x_total", &[]) - 7.0).abs() < 1e-9);
        assert!((metrics.sum("x_total", &[("b", "q\"{}, \\")]) - 3.0).abs() < 1e-9);
        assert!((metrics.sum("plain", &[]) - 1.5).abs() < 1e-9);
        assert!(!metrics.has("x_total", &[("a", "3")]));
    }
}
