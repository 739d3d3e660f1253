//! However a model is cut, its tokens are those of the whole, and a hop costs little more than its rows.

use cascadia_kernels::ActivationPrecision;

use crate::harness::{Workshop, continuation, prompt};

/// Every way to cut `layers` layers into `stages` stages.
pub(crate) fn cuts(layers: u32, stages: usize) -> Vec<Vec<u32>> {
    let mut all = vec![vec![0]];
    for _ in 1..stages {
        let longer = |cut: &Vec<u32>| {
            let last = *cut.last().expect("a cut begins with 0");
            (last + 1..layers).map(|next| [cut.as_slice(), &[next]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn check(model: &str, precision: Option<&'static str>, cuts: &[Vec<u32>]) {
    let workshop = Workshop::new(model, precision);
    let mut whole = workshop.open_whole().into_session();
    let expected = continuation(&mut whole, &prompt(40), 30);
    for cut in cuts {
        let manifest = workshop.export(cut);
        let (fleet, traffic) = workshop.fleet(&manifest);
        let mut fleet = fleet.into_session();
        assert!(continuation(&mut fleet, &prompt(40), 30) == expected, "{model} {precision:?} cut at {cut:?}");
        let row = manifest.numerics.hidden_width as usize * 4;
        let tokens = if manifest.numerics.stages_need_tokens { 4 } else { 0 };
        let steps: Vec<usize> = traffic.lock().unwrap().iter().copied().filter(|bytes| *bytes >= row).collect();
        // The prompt takes three steps; each goes to every stage and comes back.
        assert_eq!(steps.len(), (3 + 29) * 2 * cut.len());
        for bytes in steps {
            let rows = bytes / row;
            assert!(bytes <= rows * (row + tokens) + 64, "{bytes} bytes for {rows} rows of {row}");
        }
    }
}

#[test]
fn every_cut_of_a_small_model() {
    // The second has layers with windows.
    for (model, layers) in [("llama3", 3), ("gemma3", 4)] {
        let all: Vec<_> = (1..=layers).flat_map(|stages| cuts(layers as u32, stages)).collect();
        check(model, None, &all);
        check(model, Some("int4"), &all);
    }
}

/// Workers compute as exactly as the coordinator asks for.
#[test]
fn activations_of_sixteen_bits() {
    let workshop = Workshop { activations: ActivationPrecision::Int16, ..Workshop::new("llama3", Some("q8_0")) };
    let with_bytes = Workshop::new("llama3", Some("q8_0"));
    let usual = continuation(&mut with_bytes.open_whole().into_session(), &prompt(40), 30);
    let expected = continuation(&mut workshop.open_whole().into_session(), &prompt(40), 30);
    assert!(expected != usual, "other bits than with bytes");
    let (fleet, _) = workshop.fleet(&workshop.export(&[0, 1]));
    assert!(continuation(&mut fleet.into_session(), &prompt(40), 30) == expected);
}

#[test]
fn streams_experts_and_inputs_of_single_layers() {
    for (model, cuts) in [
        ("gemma3n", &[vec![0, 1, 2]][..]),
        ("gemma4", &[vec![0, 1]]),
        ("deepseek-v3", &[vec![0, 1]]),
        ("gpt2", &[vec![0, 1]]),
        ("gpt-oss", &[vec![0, 1]]),
    ] {
        check(model, Some("q8_0"), cuts);
    }
}
