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
)

// sayEvery is how often a line tells how far a command is where lines are not redrawn.
const sayEvery = 5 * time.Second

// progress shows how far a long command is, on standard error: on a terminal in one line that
// is drawn again, elsewhere in a line now and then, so that a log is not full of it.
type progress struct {
	w     io.Writer
	width int           // of the terminal; 0: it is none
	after time.Duration // that nothing is said before where lines are not redrawn; 0: at once

	mu    sync.Mutex
	start time.Time
	said  time.Time
	last  string
	stage string
	drawn bool
}

// newProgress shows on w.
func newProgress(w io.Writer) *progress {
	w = bare(w)
	p := &progress{w: w, start: time.Now()}
	if isTerminal(w) {
		p.width, _ = terminalSize(w)
	}
	return p
}

// show says how far it is in a stage of its work; each stage is told of, whatever it takes.
// What cannot be written is not missed.
func (p *progress) show(stage, text string) {
	text = printable(text) // the writer is bare, and with --json nobody has quoted it
	p.mu.Lock()
	defer p.mu.Unlock()
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

// end takes the line away: what follows is the result, or what went wrong.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// cut is a text that has at most so many characters.
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

// isTerminal reports whether a person looks at what is written.
func isTerminal(w io.Writer) bool {
	f, ok := bare(w).(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// terminalSize is that of a terminal, or what is usual where it cannot be told.
func terminalSize(w io.Writer) (width, height int) {
	if f, ok := bare(w).(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}

// workText says how far a call is: what it does, how much of it is done, and the time left.
func workText(w *dbv1.WorkProgress) string {
	text := w.GetDoing()
	if w.GetTotal() > 0 {
		text += fmt.Sprintf(": %s of about %s (%d %%)", count(w.GetDone()), count(w.GetTotal()), w.GetDone()*100/w.GetTotal())
	} else if w.GetDone() > 0 {
		text += ": " + count(w.GetDone())
	}
	return strings.TrimPrefix(text, ": ") + leftOf(w)
}

// leftOf is the time left, where that is known.
func leftOf(w *dbv1.WorkProgress) string {
	if w == nil || w.EtaSeconds == nil {
		return ""
	}
	return ", about " + span(w.GetEtaSeconds()) + " left"
}
