// The text of a PDF, found by PDF.js, which is loaded when the first one is added.

const LIBRARY = "./pdfjs/pdf.min.mjs";
const WORKER = "page/pdfjs/pdf.worker.min.mjs";
/** The most pages that are read. */
const MOST_PAGES = 1000;

/** Whether a file says that it is a PDF. */
export const isPdf = (bytes) => new TextDecoder("latin1").decode(bytes.slice(0, 5)) === "%PDF-";

/** The text of a PDF, page by page. */
export async function pdfText(bytes) {
  const library = await import(LIBRARY);
  library.GlobalWorkerOptions.workerSrc = new URL(WORKER, document.baseURI).href;
  // Nothing is drawn, so no fonts are loaded, and nothing of the file is run.
  const loading = library.getDocument({ data: bytes, isEvalSupported: false, disableFontFace: true, verbosity: 0 });
  try {
    const file = await loading.promise;
    if (file.numPages > MOST_PAGES) throw new Error(`more than ${MOST_PAGES} pages`);
    const pages = [];
    for (let number = 1; number <= file.numPages; number += 1) {
      const { items } = await (await file.getPage(number)).getTextContent();
      pages.push(items.map(({ str, hasEOL }) => (hasEOL ? `${str}\n` : str)).join(""));
    }
    const text = pages.map((page) => page.trim()).join("\n\n");
    if (text.trim() === "") throw new Error("no text: it may be scanned");
    return text;
  } catch (error) {
    if (error.name === "PasswordException") throw new Error("it needs a password");
    if (error.name === "InvalidPDFException") throw new Error("a damaged PDF");
    throw error;
  } finally {
    loading.destroy();
  }
}
