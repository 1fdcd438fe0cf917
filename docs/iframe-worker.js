// Search runs in a worker, and browsers start none for a page that was opened from a file. There a hidden frame stands in.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((done) => {
        const script = frame.contentDocument.createElement("script")
        script.src = new URL(url, location.href).href
        script.onload = () => done(inside)
        frame.contentDocument.body.append(script)
      })
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
    terminate() {}
  }
}
