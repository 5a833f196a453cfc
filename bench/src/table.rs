//! The table. Pure.

use std::fmt::Write as _;

use serde::Serialize;

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    what: String,
    /// How much it is.
    value: f64,
    /// Of what.
    unit: &'static str,
    /// How much it may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
}

/// All figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.rows.push(Row { what: what.into(), value, unit, limit: None });
    }

    pub(crate) fn add_limited(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        limit: f64,
    ) {
        self.rows.push(Row { what: what.into(), value, unit, limit: Some(limit) });
    }

    pub(crate) fn keeps_its_limits(&self) -> bool {
        self.rows.iter().all(Row::keeps_its_limit)
    }

    pub(crate) fn json(&self) -> String {
        serde_json::json!({ "rows": self.rows, "within_limits": self.keeps_its_limits() }).to_string()
    }

    pub(crate) fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            let _ = write!(text, "{:width$}  {:>10} {:<12}", row.what, short(row.value), row.unit);
            if let Some(limit) = row.limit {
                let verdict = if row.keeps_its_limit() { "ok" } else { "ABOVE ITS LIMIT" };
                let _ = write!(text, "  at most {:>8}  {verdict}", short(limit));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}

impl Row {
    fn keeps_its_limit(&self) -> bool {
        self.limit.is_none_or(|limit| self.value <= limit)
    }
}

fn short(value: f64) -> String {
    if value.abs() >= 100.0 || value == value.trunc() { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The middle of several figures, the lower one of two; 0 of none.
pub(crate) fn quantile(figures: &[f64], share: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let at = (last as f64 * share).floor() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// A count as a figure.
#[allow(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
pub(crate) fn figure(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_above_its_limit_is_told() {
        let mut table = Table::default();
        table.add_limited("within", 1.0, "s", 1.0);
        assert!(table.keeps_its_limits());
        table.add_limited("above", 1.01, "s", 1.0);
        assert!(!table.keeps_its_limits());
        assert_eq!(table.text().lines().filter(|line| line.contains("ABOVE ITS LIMIT")).count(), 1);
        assert!(table.json().contains("\"within_limits\":false"));
    }

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[1.0, 9.0], 1.0), 9.0);
    }
}
