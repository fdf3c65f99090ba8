package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/printable"
)

// sayEvery is the interval between progress lines on outputs that are not terminals.
const sayEvery = 5 * time.Second

// progress shows the progress of a long command on standard error. On a terminal it redraws one
// line. Elsewhere it prints a line now and then, so that logs stay short. It is safe for concurrent
// use.
type progress struct {
	w     io.Writer
	width int           // of the terminal in columns; 0: no terminal
	after time.Duration // initial delay if not on a terminal; 0: none

	mu    sync.Mutex
	start time.Time
	said  time.Time
	last  string
	stage string
	drawn bool
}

// newProgress returns a progress that writes to w, bypassing w's quoting.
func newProgress(w io.Writer) *progress {
	w = bare(w)
	p := &progress{w: w, start: time.Now()}
	if isTerminal(w) {
		p.width, _ = terminalSize(w)
	}
	return p
}

// show shows text as the progress of a stage. The first text of a stage is always shown, whatever
// the interval. It ignores write errors: progress is not part of the result.
func (p *progress) show(stage, text string) {
	text = printable.Line(text) // the writer is bare, and --json texts are unquoted
	p.mu.Lock()
	defer p.mu.Unlock()
	// Off a terminal, skip repeated texts, the initial delay, and all but one line each sayEvery.
	if text == "" || p.width == 0 && (text == p.last || time.Since(p.start) < p.after || stage == p.stage && !p.said.IsZero() && time.Since(p.said) < sayEvery) {
		return
	}
	p.stage, p.last, p.said = stage, text, time.Now()
	took := time.Since(p.start)
	if took >= time.Second {
		text += fmt.Sprintf(" (%s so far)", took.Round(time.Second))
	}
	if p.width == 0 {
		_, _ = fmt.Fprintln(p.w, text)
		return
	}
	p.drawn = true
	_, _ = fmt.Fprint(p.w, "\r\x1b[K"+cut(text, p.width-1))
}

// end erases the progress line, so that a result or an error can follow. It may be called twice.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// cut shortens a text to at most most characters.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	runes := []rune(text)
	return string(runes[:most-1]) + "…"
}

// isTerminal reports whether w is a terminal that can redraw.
func isTerminal(w io.Writer) bool {
	f, ok := bare(w).(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// terminalSize returns the size of a terminal, or 80 by 24 if it is unknown.
func terminalSize(w io.Writer) (width, height int) {
	if f, ok := bare(w).(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}

// workText returns the progress of a call: the activity, the amount done, and the time left.
func workText(w *dbv1.WorkProgress) string {
	text := w.GetDoing()
	if w.GetTotal() > 0 {
		text += fmt.Sprintf(": %s of about %s (%d %%)", count(w.GetDone()), count(w.GetTotal()), w.GetDone()*100/w.GetTotal())
	} else if w.GetDone() > 0 {
		text += ": " + count(w.GetDone())
	}
	return strings.TrimPrefix(text, ": ") + leftOf(w)
}

// leftOf returns the time left, or "" if it is unknown.
func leftOf(w *dbv1.WorkProgress) string {
	if w == nil || w.EtaSeconds == nil {
		return ""
	}
	return ", about " + span(w.GetEtaSeconds()) + " left"
}
