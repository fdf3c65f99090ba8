package browser

import (
	"encoding/json"
	"os"
)

// accessible checks what the browser shows now by the rules of axe-core. Serious violations fail.
func (b *tab) accessible(what string) {
	b.t.Helper()
	file := os.Getenv("DBCONTROLLER_AXE")
	if file == "" {
		b.t.Logf("%s was not checked by axe-core: 'make ui' fetches it", what)
		return
	}
	source, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	// The page's own policy admits no such script, but a debugger's are exempt.
	eval[bool](b, string(source)+";true")
	eval[bool](b, `(() => { window.axeFound = undefined; axe.run().then(
		(r) => { window.axeFound = r.violations.map((v) => ({ id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.target.join(' ') + ': ' + n.any.map((a) => a.message).join('; ')) })); },
		(e) => { window.axeFound = [{ id: 'failed', impact: 'serious', help: String(e) }]; }); return true; })()`)
	b.until("the end of axe-core", "window.axeFound")
	var found []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	if err := json.Unmarshal([]byte(eval[string](b, "JSON.stringify(window.axeFound)")), &found); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range found {
		if v.Impact == "serious" || v.Impact == "critical" {
			b.t.Errorf("%s: %s (%s): %s %q", what, v.ID, v.Impact, v.Help, v.Nodes)
		} else {
			b.t.Logf("%s: %s (%s): %s %q", what, v.ID, v.Impact, v.Help, v.Nodes)
		}
	}
}
