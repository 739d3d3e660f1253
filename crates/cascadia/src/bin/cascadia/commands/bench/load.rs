//! `cascadia bench serve`: load on a server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use cascadia_eval::load::{
    Arrivals, Behaviour, ClientOptions, Endpoint, Extent, LoadPlan, LoadRun, Outcome, Quantiles, Record, Summary,
    Target, TenantSummary, Workload, check_history, histogram, run_load,
};
use serde_json::{Value, json};

use crate::flags::LoadFlags;
use crate::output::{print, print_json};
use crate::progress::Progress;

/// Clients unless the flags say otherwise.
const CLIENTS: u32 = 8;
/// Seconds of load unless the flags say otherwise.
const SECONDS: f64 = 30.0;

/// Puts load on a server and prints how it behaved.
pub(crate) fn load(flags: &LoadFlags) -> anyhow::Result<()> {
    let plan = plan(flags)?;
    let bar = Progress::new("requests");
    let total = flags.requests.unwrap_or(0);
    let LoadRun { sent, records } = run_load(&plan, |ended| bar.set(ended, total.max(ended)))?;
    drop(bar);
    let window = match plan.extent {
        Extent::Seconds(seconds) => Some(seconds),
        Extent::Requests(_) => None,
    };
    let summary = Summary::of(&records, window, plan.workload.tenants);
    let problems = check_history(&records, sent);
    if flags.json {
        print_json(&object(flags, &summary, &records, &problems))?;
    } else {
        print(&report(&summary, &records))?;
    }
    anyhow::ensure!(problems.is_empty(), "the history of this run contradicts itself: {}", problems.join("; "));
    Ok(())
}

fn plan(flags: &LoadFlags) -> anyhow::Result<LoadPlan> {
    let keys = flags.keys.as_deref().map(keys).transpose()?.unwrap_or_default();
    let tenants = flags.tenants.map_or(keys.len().max(1), |tenants| tenants as usize);
    anyhow::ensure!(
        keys.is_empty() || keys.len() >= tenants,
        "there are {tenants} tenants and {} keys; give each tenant a key of its own",
        keys.len()
    );
    anyhow::ensure!(flags.cancel + flags.slow_readers <= 1.0, "more clients misbehave than there are; lower the parts");
    Ok(LoadPlan {
        workload: Workload {
            seed: flags.seed,
            prompt: flags.prompt,
            answer: flags.answer,
            shared_prefix: flags.shared_prefix,
            cancel: flags.cancel,
            slow: flags.slow_readers,
            temperatures: flags.temperatures.clone(),
            tenants,
            greed: flags.greedy,
        },
        client: ClientOptions {
            target: Target::parse(&flags.url)?,
            endpoint: if flags.chat { Endpoint::Chat } else { Endpoint::Completions },
            model: flags.model.clone(),
            keys,
            timeout: Duration::from_secs_f64(flags.timeout),
        },
        arrivals: match (flags.clients, flags.rate) {
            (None, Some(rate)) => Arrivals::PerSecond(rate),
            (Some(clients), Some(rate)) => Arrivals::Paced(clients as usize, rate),
            (clients, None) => Arrivals::Clients(clients.unwrap_or(CLIENTS) as usize),
        },
        extent: match flags.requests {
            Some(requests) => Extent::Requests(requests),
            None => Extent::Seconds(flags.duration.unwrap_or(SECONDS)),
        },
    })
}

/// The keys in a file, one per line.
fn keys(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the keys in {}", path.display()))?;
    let keys: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    anyhow::ensure!(!keys.is_empty(), "there is no key in {}; write one per line", path.display());
    Ok(keys)
}

fn report(summary: &Summary, records: &[Record]) -> String {
    let Summary { window, sent, done, cancelled, refused, failed, .. } = summary;
    let mut text = format!(
        "{sent} requests in {window:.1} s: {done} done, {cancelled} cancelled, {refused} refused, {failed} failed\n\
         {:.1} tok/s of all streams, {:.2} answers per second\n\n\
         milliseconds           p50        p95        p99       most\n",
        summary.tokens_per_second, summary.done_per_second
    );
    let rows = [("first token", summary.first), ("token to token", summary.gap), ("whole answer", summary.total)];
    for (name, Quantiles { p50, p95, p99, most, .. }) in rows {
        let [p50, p95, p99, most] = [p50, p95, p99, most].map(|seconds| seconds * 1e3);
        text.push_str(&format!("{name:15} {p50:10.1} {p95:10.1} {p99:10.1} {most:10.1}\n"));
    }
    let prompt = |record: &&Record| record.behaviour != Behaviour::Slow;
    let firsts: Vec<f64> = records.iter().filter(prompt).filter_map(|record| record.first).collect();
    let gaps: Vec<f64> = records.iter().filter(prompt).flat_map(|record| record.gaps.clone()).collect();
    for (title, values) in [("first token", firsts), ("token to token", gaps)] {
        text.push_str(&format!("\n{}", histogram(title, &values)));
    }
    let statuses: Vec<String> = summary.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
    text.push_str(&format!("\nstatus  {}\n", statuses.join(", ")));
    for (problem, count) in &summary.errors {
        text.push_str(&format!("error   {count} × {problem}\n"));
    }
    if summary.tenants.len() > 1 {
        text.push_str("\ntenant   sent   done refused   tokens served   first token p50 ms\n");
        for (tenant, TenantSummary { sent, done, refused, served, first }) in summary.tenants.iter().enumerate() {
            let first = first.p50 * 1e3;
            text.push_str(&format!("{tenant:6} {sent:6} {done:6} {refused:7} {served:15.0} {first:20.1}\n"));
        }
        text.push_str(&format!("fairness (Jain) {:.3}\n", summary.fairness));
    }
    text
}

fn object(flags: &LoadFlags, summary: &Summary, records: &[Record], problems: &[String]) -> Value {
    let quantiles = |Quantiles { count, p50, p95, p99, most }: &Quantiles| json!({"count": count, "p50": p50, "p95": p95, "p99": p99, "max": most});
    let tenant = |TenantSummary { sent, done, refused, served, first }: &TenantSummary| json!({"sent": sent, "done": done, "refused": refused, "served_tokens": served, "first_token": quantiles(first)});
    let statuses = summary.statuses.iter().map(|(status, count)| (status.to_string(), (*count).into()));
    json!({
        "url": flags.url,
        "clients": flags.clients.or(flags.rate.is_none().then_some(CLIENTS)),
        "rate": flags.rate,
        "prompt": flags.prompt.to_string(),
        "answer": flags.answer.to_string(),
        "seed": flags.seed,
        "seconds": summary.window,
        "sent": summary.sent,
        "done": summary.done,
        "cancelled": summary.cancelled,
        "refused": summary.refused,
        "failed": summary.failed,
        "statuses": statuses.collect::<serde_json::Map<String, Value>>(),
        "errors": summary.errors,
        "first_token_s": quantiles(&summary.first),
        "inter_token_s": quantiles(&summary.gap),
        "end_to_end_s": quantiles(&summary.total),
        "tok_s": summary.tokens_per_second,
        "answers_s": summary.done_per_second,
        "tenants": summary.tenants.iter().map(tenant).collect::<Vec<_>>(),
        "fairness": summary.fairness,
        "problems": problems,
        "requests": records.iter().map(request).collect::<Vec<_>>(),
    })
}

fn request(record: &Record) -> Value {
    let (behaviour, leaves_after) = match record.behaviour {
        Behaviour::Patient => ("patient", None),
        Behaviour::Slow => ("slow", None),
        Behaviour::Leaves { after } => ("leaves", Some(after)),
    };
    let error = match &record.outcome {
        Outcome::Error(problem) => Some(problem),
        Outcome::Done | Outcome::Cancelled => None,
    };
    json!({
        "number": record.number,
        "tenant": record.tenant,
        "manner": behaviour,
        "leaves_after": leaves_after,
        "status": record.status,
        "retry_after": record.retry_after,
        "outcome": record.outcome_name(),
        "error": error,
        "words": record.words,
        "asked": record.asked,
        "prompt_tokens": record.prompt_tokens,
        "tokens": record.tokens,
        "start_s": record.start,
        "first_token_s": record.first,
        "inter_token_s": record.gaps,
        "total_s": record.total,
        "text": record.text,
    })
}
