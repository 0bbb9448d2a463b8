//! What the rows that are out of bound have in common: which of the rows that one could expect of a defect
//! they are.
//!
//! Inputs: the rows, how they were fed, the layer's window, what was executed. Output: the most specific
//! pattern that fits. Absent on purpose: the values.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Of the rows that a pattern predicts, at least this share must be out of bound: a row may be right by
/// chance, such as a query that does not look at the key it has lost.
pub const COVERED_MIN: f64 = 0.8;
/// Patterns that name an expert need this many rows, or every lone row would have one.
const EXPERT_ROWS_MIN: usize = 2;
/// Ranks of errors and positions correlate at least so much where errors are said to grow; of independent
/// ones, eight rows do so in one case of twenty.
const GROWS_MIN: f64 = 0.65;
/// Of fewer rows nothing is said about growth.
const GROWS_ROWS_MIN: usize = 8;

/// Which rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rows", rename_all = "snake_case")]
pub enum Pattern {
    /// Every row.
    All,
    /// In calls of one token, from this position on.
    Decode {
        /// The first.
        from: usize,
    },
    /// In calls of one token, from the second such call on.
    DecodeAfterFirst {
        /// The first.
        from: usize,
    },
    /// The first row of every call from some call on, not all of one token.
    FirstOfCalls {
        /// The first.
        from: usize,
    },
    /// Every row from the second call on.
    LaterCalls {
        /// Where the second call starts.
        from: usize,
    },
    /// From where on a sliding layer's window is full: `W - 1`, the first query that sees W keys, or `W`, the
    /// first that has lost one.
    PastWindow {
        /// `W - 1` or `W`.
        from: usize,
        /// W.
        window: usize,
    },
    /// The same rows, and only if the tokens are fed in several calls: where a rotating cache wraps.
    AfterWrap {
        /// The first.
        from: usize,
        /// W.
        window: usize,
    },
    /// Where some executed expert has this many tokens in the call.
    ExpertTokens {
        /// Tokens of the call that went to the expert.
        tokens: usize,
        /// The first row.
        first: usize,
    },
    /// Where this expert is executed.
    Expert {
        /// Its id.
        expert: u16,
        /// The first row.
        first: usize,
    },
    /// From a position on.
    From {
        /// The first.
        from: usize,
    },
    /// None of these.
    Some {
        /// How many.
        count: usize,
        /// Out of how many.
        of: usize,
        /// The first.
        first: usize,
    },
}

/// How the rows came to be.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The calls, as ranges of positions.
    pub calls: Vec<Range<usize>>,
    /// From where on one token was fed per call.
    pub decode_from: Option<usize>,
    /// The model's window, which a layer may have by mistake.
    pub window: Option<usize>,
    /// What each row executed, where the site is of experts.
    pub experts: Option<Vec<Vec<u16>>>,
}

/// The most specific pattern of rows out of bound, `[T]`. Panics if there is none.
pub fn classify(out: &[bool], facts: &Facts) -> Pattern {
    let all = out.len();
    let rows: BTreeSet<usize> = (0..all).filter(|&row| out[row]).collect();
    let first = *rows.first().expect("a row out of bound");
    if rows.len() == all {
        return Pattern::All;
    }
    let of_calls = candidates(all, first, facts);
    let of_experts = of_experts(facts, rows.len());
    let last = [(Pattern::From { from: first }, (first..all).collect())];
    let named = of_calls.into_iter().chain(of_experts).chain(last.into_iter().filter(|_| first > 0));
    named
        .into_iter()
        .find(|(_, predicted)| fits(&rows, predicted))
        .map_or(Pattern::Some { count: rows.len(), of: all, first }, |(pattern, _)| pattern)
}

/// Whether the rows are the predicted ones: none else, from the first of them on, and nearly all.
fn fits(rows: &BTreeSet<usize>, predicted: &BTreeSet<usize>) -> bool {
    rows.is_subset(predicted)
        && rows.first() == predicted.first()
        && rows.len() as f64 >= COVERED_MIN * predicted.len() as f64
}

/// What the way of feeding predicts, most specific first.
fn candidates(all: usize, first: usize, facts: &Facts) -> Vec<(Pattern, BTreeSet<usize>)> {
    let mut named = Vec::new();
    let from = |start: usize| (start..all).collect::<BTreeSet<usize>>();
    if let Some(decode) = facts.decode_from.filter(|&decode| 0 < decode && decode < all) {
        named.push((Pattern::Decode { from: decode }, from(decode)));
        if decode + 1 < all {
            named.push((Pattern::DecodeAfterFirst { from: decode + 1 }, from(decode + 1)));
        }
    }
    let later = facts.calls.iter().skip(1).filter(|call| call.start >= first);
    if later.clone().any(|call| call.len() > 1) {
        named.push((Pattern::FirstOfCalls { from: first }, later.map(|call| call.start).collect()));
    }
    if let Some(second) = facts.calls.get(1) {
        named.push((Pattern::LaterCalls { from: second.start }, from(second.start)));
    }
    if let Some(window) = facts.window.filter(|&window| first + 1 == window || first == window) {
        named.push((Pattern::PastWindow { from: first, window }, from(first)));
    }
    named
}

/// What the executed experts predict, the fewest rows first.
fn of_experts(facts: &Facts, out: usize) -> Vec<(Pattern, BTreeSet<usize>)> {
    let Some(experts) = facts.experts.as_ref().filter(|_| out >= EXPERT_ROWS_MIN) else { return Vec::new() };
    let mut by_tokens: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut by_expert: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
    for call in &facts.calls {
        let mut rows: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
        for row in call.clone() {
            experts[row].iter().for_each(|&expert| _ = rows.entry(expert).or_default().insert(row));
        }
        for (expert, rows) in rows {
            by_tokens.entry(rows.len()).or_default().extend(&rows);
            by_expert.entry(expert).or_default().extend(&rows);
        }
    }
    let first = |rows: &BTreeSet<usize>| *rows.first().expect("an expert that was executed");
    let tokens = by_tokens
        .into_iter()
        .map(|(tokens, rows)| (Pattern::ExpertTokens { tokens, first: first(&rows) }, rows));
    let one =
        by_expert.into_iter().map(|(expert, rows)| (Pattern::Expert { expert, first: first(&rows) }, rows));
    let mut named: Vec<_> = tokens.chain(one).filter(|(_, rows)| rows.len() < experts.len()).collect();
    named.sort_by_key(|(_, rows)| rows.len());
    named
}

impl Pattern {
    /// The same, where it is known whether one call for all tokens shows it too.
    pub fn refined(self, in_one_call: Option<bool>) -> Self {
        match self {
            Pattern::PastWindow { from, window } if in_one_call == Some(false) => {
                Pattern::AfterWrap { from, window }
            }
            other => other,
        }
    }

    /// In words, to follow the place.
    pub fn words(&self) -> String {
        match self {
            Pattern::All => "all rows".into(),
            Pattern::Decode { from } => format!("only in calls of one token, from position {from} on"),
            Pattern::DecodeAfterFirst { from } => {
                format!("only in calls of one token, from the second on (position {from})")
            }
            Pattern::FirstOfCalls { from } => {
                format!("only the first row of each call, from position {from} on")
            }
            Pattern::LaterCalls { from } => format!("from the second call on (position {from})"),
            Pattern::PastWindow { from, window } if from + 1 == *window => {
                format!("from position {from} on, where the window of {window} is full")
            }
            Pattern::PastWindow { from, window } => {
                format!("from position {from} on, where the window of {window} should have lost a key")
            }
            Pattern::AfterWrap { from, window } => {
                format!(
                    "from position {from} on, only after the rotating cache of the window of {window} wraps"
                )
            }
            Pattern::ExpertTokens { tokens: 1, .. } => {
                "where an executed expert has one token of the call".into()
            }
            Pattern::ExpertTokens { tokens, .. } => {
                format!("where an executed expert has {tokens} tokens of the call")
            }
            Pattern::Expert { expert, .. } => format!("where expert {expert} is executed"),
            Pattern::From { from } => format!("from position {from} on"),
            Pattern::Some { count, of, first } => {
                format!("{count} of {of} rows, the first at position {first}")
            }
        }
    }
}

/// Whether errors grow with position: the ranks of the rows out of bound and of their errors correlate.
pub fn grows(rows: &[usize], errors: &[f64]) -> bool {
    assert_eq!(rows.len(), errors.len(), "an error a row");
    rows.len() >= GROWS_ROWS_MIN && rank_correlation(errors) >= GROWS_MIN
}

/// Spearman's correlation of a list with its own order; ties have the mean of their ranks. 0 of a list whose
/// numbers are all equal, or with a NaN in it.
pub fn rank_correlation(values: &[f64]) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return 0.0;
    }
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    let mean = (values.len() as f64 - 1.0) / 2.0;
    let (mut both, mut of_values, mut of_order) = (0.0, 0.0, 0.0);
    for (order, value) in values.iter().enumerate() {
        let (x, y) = (order as f64 - mean, rank(value) - mean);
        both += x * y;
        of_order += x * x;
        of_values += y * y;
    }
    if of_values > 0.0 { both / (of_values * of_order).sqrt() } else { 0.0 }
}
