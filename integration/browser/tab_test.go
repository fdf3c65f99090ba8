package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// tab is one tab of a headless browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // errors and warnings of the console
}

// open starts a browser with an empty tab.
func open(t *testing.T) *tab {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if at, err := exec.LookPath(name); err == nil {
			program = at
			break
		}
	}
	if program == "" {
		t.Skip("chromium is not installed (Debian: chromium)")
	}
	opts := []chromedp.ExecAllocatorOption{chromedp.Headless, chromedp.ExecPath(program), chromedp.Flag("disable-dev-shm-usage", true)}
	// Chromium refuses its sandbox to root.
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	// The browser lives as long as the context of its first action.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1300, 900)); err != nil {
		t.Fatal(err)
	}
	b := &tab{t: t, ctx: ctx}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.Type == chromedp.ConsoleException {
				b.mu.Lock()
				b.problems = append(b.problems, fmt.Sprintf("%s: %s (%s)", m.Type, m.Text, m.URL))
				b.mu.Unlock()
			}
		}
	}()
	return b
}

// clean fails if the console has errors, except those that contain one of the texts.
func (b *tab) clean(except ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
problems:
	for _, p := range b.problems {
		for _, e := range except {
			if strings.Contains(p, e) {
				continue problems
			}
		}
		b.t.Errorf("console: %s", p)
	}
	b.problems = nil
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) visit(address string) { b.t.Helper(); b.do(chromedp.Navigate(address)) }

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// eval returns the value of an expression.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return got
}

// until waits for a condition.
func (b *tab) until(what, script string) {
	b.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if eval[bool](b, "Boolean("+script+")") {
			return
		}
	}
	b.t.Fatalf("%s did not happen within %s; the page has:\n%s", what, patience, eval[string](b, "document.body.innerText"))
}

// sees waits for a text on the page.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("the text %q", text), fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// click clicks an element when it is there and can be used.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until("the element "+selector, fmt.Sprintf("document.querySelector(%q) && !document.querySelector(%q).disabled", selector, selector))
	b.do(chromedp.Click(selector, chromedp.NodeVisible))
}

// fill types into a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(selector, text, chromedp.NodeVisible))
}

// shot writes a picture into the folder that the environment names.
func (b *tab) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("DBCONTROLLER_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// dark sets whether the user prefers a dark page.
func (b *tab) dark(dark bool) {
	b.t.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) login(token string) {
	b.t.Helper()
	b.until("the login", "document.querySelector('#token')")
	b.fill("#token", token)
	b.click("form.login button[type=submit]")
}
