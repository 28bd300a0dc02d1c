import { home } from "./base";
import type { Context } from "./context";
import { h } from "./dom";
import { bytes } from "./format";

/** Opens local files: they are uploaded and shown by the server. Several are aligned at their starts. */
export class Files {
  readonly canOpen: boolean;
  private most: number;
  private over = h("div", { class: "drop", hidden: true }, h("strong", {}, "Drop recordings to open them"), h("span", {}, "Several are shown side by side, aligned at their starts."));

  constructor(private context: Context) {
    const { changes } = context.summary;
    this.canOpen = Boolean(changes?.open);
    this.most = changes?.most_bytes ?? 0;
    if (!this.canOpen) return;
    document.body.append(this.over);
    this.listen();
  }

  /** Opens the file dialog. */
  choose(): void {
    const input = h("input", { type: "file", multiple: true });
    input.addEventListener("change", () => void this.open([...(input.files ?? [])]));
    input.click();
  }

  /** Uploads files, and goes to their page. */
  async open(files: File[]): Promise<void> {
    if (files.length === 0) return;
    const size = files.reduce((sum, file) => sum + file.size, 0);
    if (size > this.most) return this.context.connection.report(`These files have ${bytes(size)}; at most ${bytes(this.most)} can be copied. Open them with asof serve instead.`);
    try {
      let look: number | undefined;
      let done = 0;
      for (const file of files) {
        const query = new URLSearchParams({ name: file.name, ...(look !== undefined && { look: String(look) }) });
        const answer = await this.send(`${home}api/files?${query}`, file, (sent) => this.tell(`Copying ${file.name}: ${bytes(done + sent)} of ${bytes(size)}`));
        look = Number(answer.look);
        done += file.size;
      }
      this.tell("Opening …");
      const { url } = await this.send(`${home}api/files/open?look=${look}`, undefined, () => undefined);
      location.href = String(url);
    } catch (error) {
      this.over.hidden = true;
      this.context.connection.report((error as Error).message);
    }
  }

  private tell(text: string): void {
    this.over.hidden = false;
    this.over.replaceChildren(h("strong", {}, text));
  }

  /** A request whose body is streamed from the disk. */
  private send(path: string, body: File | undefined, told: (sent: number) => void): Promise<Record<string, unknown>> {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("POST", path);
      request.upload.onprogress = (event) => told(event.loaded);
      request.onerror = () => reject(new Error("The server did not accept the file."));
      request.onload = () => {
        const answer = JSON.parse(request.responseText || "{}") as Record<string, unknown>;
        if (request.status === 200) resolve(answer);
        else reject(new Error(String(answer.error ?? request.statusText)));
      };
      request.send(body);
    });
  }

  private listen(): void {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.over.hidden = false;
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) this.over.hidden = true;
    });
    addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.over.hidden = true;
      void this.open([...(event.dataTransfer?.files ?? [])]);
    });
  }
}
