// The search of a site that is opened from a disk: browsers start no worker from file://, so that a
// hidden frame runs the worker's script in its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.load(url);
    }

    load(url) {
      return (this.loading = new Promise((resolve, reject) => {
        const document = this.scope.document;
        const script = document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        document.body.append(script);
      }));
    }

    postMessage(data) {
      this.loading.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.scope.frameElement.remove();
    }
  };
}
