//! Serves a model from a program and asks it one question over HTTP: `cargo run --release --example serve`.

use std::io::{Read, Write, stdout};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;

use cascadia::{EMBEDDED_MODEL, GenerateOptions, Message, Model, Server};
use serde_json::{Value, json};

const QUESTION: &str = "Tell me about the harbour at night.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::builder().context(1024).open(EMBEDDED_MODEL)?;
    let messages = [Message { role: "user", content: QUESTION.to_owned() }];
    let expected = model.chat_with(&messages, &GenerateOptions::greedy().max_tokens(32))?.text()?;

    let server = Server::builder().bind((Ipv4Addr::LOCALHOST, 0)).serve(model)?;
    let (address, stopper) = (server.address(), server.stopper());
    let serving = thread::spawn(move || server.run());
    let answer = ask(address)?;
    stopper.stop();
    serving.join().map_err(|_| "the server panicked")??;

    let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    writeln!(stdout(), "> {QUESTION}\n{text}")?;
    assert_eq!(text, expected, "over HTTP and in the program, the same answer");
    Ok(())
}

/// Any client of OpenAI's API will do; this one needs no library.
fn ask(address: SocketAddr) -> Result<Value, Box<dyn std::error::Error>> {
    let body = json!({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 32});
    let body = body.to_string();
    let mut connection = TcpStream::connect(address)?;
    write!(connection, "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n")?;
    write!(connection, "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut response = String::new();
    connection.read_to_string(&mut response)?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("no response")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{response}");
    Ok(serde_json::from_str(body)?)
}
