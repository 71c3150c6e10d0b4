//! One metric with labels: a cell per combination of label values, found without a write lock.
//!
//! The crate's own vectors look a cell up by a hash of the label values run together, so that
//! `("ab", "c")` and `("a", "bc")` share one cell; clients and upstreams have names of the operator's
//! choice, hence this.
//!
//! Must not know: which metrics there are.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{PoisonError, RwLock};

use prometheus::core::Metric;
use prometheus::proto::{LabelPair, MetricFamily, MetricType};
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntGauge};

use super::list::{Kind, Spec};

/// How many combinations of label values one metric may have. What comes later is counted under
/// [`OVERFLOW`], so that a catalog that renames its tools for ever does not eat the memory.
pub(super) const MAX_SERIES: usize = 10_000;

/// Stands for every label value once [`MAX_SERIES`] is reached.
pub(super) const OVERFLOW: &str = "(other)";

/// What one combination of label values counts in.
pub(super) trait Cell: Metric {
    /// What the text format calls it.
    const TYPE: MetricType;

    /// A cell at zero; `None` if the specification is wrong, which a test excludes.
    fn make(spec: &Spec) -> Option<Self>;
}

impl Cell for IntCounter {
    const TYPE: MetricType = MetricType::COUNTER;

    fn make(spec: &Spec) -> Option<Self> {
        Self::new(spec.name, spec.help).ok()
    }
}

impl Cell for IntGauge {
    const TYPE: MetricType = MetricType::GAUGE;

    fn make(spec: &Spec) -> Option<Self> {
        Self::new(spec.name, spec.help).ok()
    }
}

impl Cell for Gauge {
    const TYPE: MetricType = MetricType::GAUGE;

    fn make(spec: &Spec) -> Option<Self> {
        Self::new(spec.name, spec.help).ok()
    }
}

impl Cell for Histogram {
    const TYPE: MetricType = MetricType::HISTOGRAM;

    fn make(spec: &Spec) -> Option<Self> {
        let buckets = match spec.kind {
            Kind::Histogram(buckets) => buckets.to_vec(),
            Kind::Counter | Kind::Gauge => return None,
        };
        Self::with_opts(HistogramOpts::new(spec.name, spec.help).buckets(buckets)).ok()
    }
}

/// A metric whose cells can be forgotten.
pub(super) trait Forgetful {
    /// See [`Family::forget`].
    fn forget(&self, wanted: &[(&str, &str)]);
}

impl<M: Cell> Forgetful for Family<M> {
    fn forget(&self, wanted: &[(&str, &str)]) {
        Self::forget(self, wanted);
    }
}

/// The label values of a cell, and the cell.
type Entry<M> = (Box<[Box<str>]>, M);

/// All cells of one metric. At most [`MAX_SERIES`] and one.
pub(super) struct Family<M> {
    spec: &'static Spec,
    hasher: RandomState,
    cells: RwLock<Cells<M>>,
}

struct Cells<M> {
    /// By the hash of their label values; more than one only where hashes collide.
    by_hash: HashMap<u64, Vec<Entry<M>>>,
    count: usize,
}

impl<M: Cell> Family<M> {
    /// A metric without any cell.
    pub(super) fn new(spec: &'static Spec) -> Self {
        let cells = RwLock::new(Cells { by_hash: HashMap::new(), count: 0 });
        Self { spec, hasher: RandomState::new(), cells }
    }

    /// Acts on the cell of these label values, which is made at zero where it is missing.
    pub(super) fn with<R>(&self, labels: &[&str], act: impl FnOnce(&M) -> R) -> Option<R> {
        let hash = self.hash(labels);
        {
            let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(cell) = cells.find(hash, labels) {
                return Some(act(cell));
            }
        }
        self.make(hash, labels).map(|cell| act(&cell))
    }

    /// The cell of these label values, to be kept.
    pub(super) fn cell(&self, labels: &[&str]) -> Option<M> {
        self.with(labels, M::clone)
    }

    fn make(&self, hash: u64, labels: &[&str]) -> Option<M> {
        let overflow = [OVERFLOW; MAX_LABELS];
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        let (hash, labels) = match cells.count < MAX_SERIES {
            true => (hash, labels),
            false => {
                let labels = overflow.get(..labels.len())?;
                (self.hash(labels), labels)
            }
        };
        if let Some(cell) = cells.find(hash, labels) {
            return Some(cell.clone());
        }
        let cell = M::make(self.spec)?;
        let values = labels.iter().map(|value| Box::from(*value)).collect();
        cells.by_hash.entry(hash).or_default().push((values, cell.clone()));
        cells.count += 1;
        Some(cell)
    }

    /// Forgets all cells that have these values of these labels; one that is used again begins at zero.
    pub(super) fn forget(&self, wanted: &[(&str, &str)]) {
        let places: Vec<(usize, &str)> = wanted
            .iter()
            .filter_map(|(label, value)| {
                Some((self.spec.labels.iter().position(|known| known == label)?, *value))
            })
            .collect();
        if places.len() < wanted.len() {
            return;
        }
        let is_meant = |values: &[Box<str>]| {
            places.iter().all(|(place, value)| values.get(*place).is_some_and(|own| **own == **value))
        };
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        for found in cells.by_hash.values_mut() {
            found.retain(|(values, _)| !is_meant(values));
        }
        cells.by_hash.retain(|_, found| !found.is_empty());
        cells.count = cells.by_hash.values().map(Vec::len).sum();
    }

    fn hash(&self, labels: &[&str]) -> u64 {
        self.hasher.hash_one(labels)
    }

    /// What is there now, cells in the order of their label values.
    pub(super) fn collect(&self) -> MetricFamily {
        let mut metrics: Vec<(Box<[Box<str>]>, M)> = {
            let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
            cells.by_hash.values().flatten().cloned().collect()
        };
        metrics.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut family = MetricFamily::default();
        family.set_name(self.spec.name.to_owned());
        family.set_help(self.spec.help.to_owned());
        family.set_field_type(M::TYPE);
        let labelled = metrics.iter().map(|(values, cell)| {
            let mut metric = cell.metric();
            metric.set_label(pairs(self.spec.labels, values));
            metric
        });
        family.set_metric(labelled.collect());
        family
    }
}

/// The most labels that one metric may have.
const MAX_LABELS: usize = 8;

impl<M> Cells<M> {
    fn find(&self, hash: u64, labels: &[&str]) -> Option<&M> {
        let is_same = |values: &[Box<str>]| values.iter().map(|value| &**value).eq(labels.iter().copied());
        let entries = self.by_hash.get(&hash)?;
        entries.iter().find(|(values, _)| is_same(values)).map(|(_, cell)| cell)
    }
}

fn pairs(names: &[&str], values: &[Box<str>]) -> Vec<LabelPair> {
    let pair = |name: &str, value: &str| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    names.iter().zip(values).map(|(name, value)| pair(name, value)).collect()
}

impl<M> std::fmt::Debug for Family<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Family").field(&self.spec.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::list;

    fn values(family: &MetricFamily) -> Vec<(Vec<String>, u64)> {
        let read = |metric: &prometheus::proto::Metric| {
            let labels = metric.get_label().iter().map(|pair| pair.value().to_owned()).collect();
            (labels, metric.get_counter().get_value() as u64)
        };
        family.get_metric().iter().map(read).collect()
    }

    #[test]
    fn names_that_run_together_alike_count_apart() {
        let family = Family::<IntCounter>::new(&list::RATE_LIMITED);
        family.with(&["ab", "c"], IntCounter::inc);
        family.with(&["a", "bc"], IntCounter::inc);
        family.with(&["a", "bc"], IntCounter::inc);
        let expected =
            vec![(vec!["a".to_owned(), "bc".to_owned()], 2), (vec!["ab".to_owned(), "c".to_owned()], 1)];
        assert_eq!(values(&family.collect()), expected);
    }

    #[test]
    fn the_number_of_series_is_bounded_and_nothing_goes_uncounted() {
        let family = Family::<IntCounter>::new(&list::RATE_LIMITED);
        for index in 0..MAX_SERIES + 5 {
            family.with(&[&index.to_string(), "x"], IntCounter::inc);
        }
        let read = values(&family.collect());
        assert_eq!(read.len(), MAX_SERIES + 1);
        assert_eq!(read[0], (vec![OVERFLOW.to_owned(), OVERFLOW.to_owned()], 5));
    }

    #[test]
    fn a_kept_cell_is_the_same_cell() {
        let family = Family::<IntGauge>::new(&list::CALLS_IN_FLIGHT);
        let cell = family.cell(&["a"]).unwrap();
        cell.inc();
        assert_eq!(family.with(&["a"], IntGauge::get), Some(1));
    }
}
