//! Compiles templates so that every operation which can make a large value goes through our own functions.

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};

use crate::TextError;
use crate::template::syntax;

/// Names of the functions that stand in for operators; no template can spell them.
pub(crate) mod operator {
    pub(crate) const CONCATENATE: &str = "operator ~";
    pub(crate) const ADD: &str = "operator +";
    pub(crate) const MULTIPLY: &str = "operator *";
    pub(crate) const EQUAL: &str = "operator ==";
    pub(crate) const NOT_EQUAL: &str = "operator !=";
    pub(crate) const LESS: &str = "operator <";
    pub(crate) const LESS_OR_EQUAL: &str = "operator <=";
    pub(crate) const GREATER: &str = "operator >";
    pub(crate) const GREATER_OR_EQUAL: &str = "operator >=";
    pub(crate) const IN: &str = "operator in";
    pub(crate) const LIST: &str = "operator []";
    pub(crate) const TUPLE: &str = "operator ()";
    pub(crate) const MAP: &str = "operator {}";
    pub(crate) const ITEM: &str = "operator [x]";
    pub(crate) const SLICE: &str = "operator [:]";
}

/// Instructions ready to run.
pub(crate) struct Compiled<'source> {
    pub(crate) instructions: Instructions<'source>,
    pub(crate) blocks: std::collections::BTreeMap<&'source str, Instructions<'source>>,
}

/// Parses a scanned source. The source must have passed [`prepare`](super::scan::prepare), which bounds the recursion
/// of parser and code generator.
pub(crate) fn compile(source: &str) -> Result<Compiled<'_>, TextError> {
    let tree = parse(source, "chat template", syntax()).map_err(|error| TextError::TemplateSyntax {
        line: error.line().unwrap_or(1),
        reason: error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
    })?;
    let mut generator = CodeGenerator::new("chat template", source);
    generator.compile_stmt(&tree);
    let (mut instructions, mut blocks) = generator.finish();
    guard(&mut instructions)?;
    for block in blocks.values_mut() {
        guard(block)?;
    }
    Ok(Compiled { instructions, blocks })
}

/// Replaces operators by calls, one for one, so that jump targets stay valid.
fn guard(instructions: &mut Instructions<'_>) -> Result<(), TextError> {
    let mut index = 0;
    while let Some(instruction) = instructions.get(index) {
        let replacement = replacement(instruction).map_err(|what| TextError::TemplateSyntax {
            line: instructions.get_line(index).unwrap_or(1),
            reason: format!("{what} is not supported"),
        })?;
        if let (Some((name, arguments)), Some(slot)) = (replacement, instructions.get_mut(index)) {
            *slot = Instruction::CallFunction(name, Some(arguments));
        }
        index += 1;
    }
    Ok(())
}

/// The function to call instead, with its number of arguments; an error names what templates must not use.
fn replacement(instruction: &Instruction<'_>) -> Result<Option<(&'static str, u16)>, &'static str> {
    let count = |number: usize| u16::try_from(number).map_err(|_| "a list of more than 65535 elements");
    Ok(Some(match instruction {
        Instruction::StringConcat => (operator::CONCATENATE, 2),
        Instruction::Add => (operator::ADD, 2),
        Instruction::Mul => (operator::MULTIPLY, 2),
        Instruction::Eq => (operator::EQUAL, 2),
        Instruction::Ne => (operator::NOT_EQUAL, 2),
        Instruction::Lt => (operator::LESS, 2),
        Instruction::Lte => (operator::LESS_OR_EQUAL, 2),
        Instruction::Gt => (operator::GREATER, 2),
        Instruction::Gte => (operator::GREATER_OR_EQUAL, 2),
        Instruction::In => (operator::IN, 2),
        Instruction::GetItem => (operator::ITEM, 2),
        Instruction::Slice => (operator::SLICE, 4),
        Instruction::BuildList(Some(elements)) => (operator::LIST, count(*elements)?),
        Instruction::BuildTuple(Some(elements)) => (operator::TUPLE, count(*elements)?),
        Instruction::BuildMap(pairs) => (operator::MAP, count(pairs.saturating_mul(2))?),
        Instruction::CompareAndPreserve(_) => return Err("a chained comparison such as `a < b < c`"),
        Instruction::Include(_) | Instruction::LoadBlocks => return Err("`include`, `import` or `extends`"),
        _ => return Ok(None),
    }))
}
