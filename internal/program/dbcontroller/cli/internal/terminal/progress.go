package terminal

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

// Interval is the interval between progress lines on outputs that are not terminals.
const Interval = 5 * time.Second

// Progress shows the progress of a long command on standard error. On a terminal it redraws one
// line. Elsewhere it prints a line now and then, so that logs stay short. It is safe for concurrent
// use.
type Progress struct {
	w     io.Writer
	width int           // of the terminal in columns; 0: no terminal
	After time.Duration // initial delay if not on a terminal; 0: none

	mu    sync.Mutex
	start time.Time
	said  time.Time
	last  string
	stage string
	drawn bool
}

// NewProgress returns a progress that writes to w, bypassing w's quoting.
func NewProgress(w io.Writer) *Progress {
	w = Bare(w)
	p := &Progress{w: w, start: time.Now()}
	if Is(w) {
		p.width, _ = Size(w)
	}
	return p
}

// Show shows text as the progress of a stage. The first text of a stage is always shown, whatever
// the interval. It ignores write errors: progress is not part of the result.
func (p *Progress) Show(stage, text string) {
	text = printable.Line(text) // the writer is bare, and --json texts are unquoted
	p.mu.Lock()
	defer p.mu.Unlock()
	// Off a terminal, skip repeated texts, the initial delay, and all but one line each Interval.
	if text == "" || p.width == 0 && (text == p.last || time.Since(p.start) < p.After || stage == p.stage && !p.said.IsZero() && time.Since(p.said) < Interval) {
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
	_, _ = fmt.Fprint(p.w, "\r\x1b[K"+Shorten(text, p.width-1))
}

// End erases the progress line, so that a result or an error can follow. It may be called twice.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// Shorten shortens a text to at most most characters.
func Shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	runes := []rune(text)
	return string(runes[:most-1]) + "…"
}

// Is reports whether w is a terminal that can redraw.
func Is(w io.Writer) bool {
	f, ok := Bare(w).(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// Size returns the size of a terminal, or 80 by 24 if it is unknown.
func Size(w io.Writer) (width, height int) {
	if f, ok := Bare(w).(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}

// WorkText returns the progress of a call: the activity, the amount done, and the time left.
func WorkText(w *dbv1.WorkProgress) string {
	text := w.GetDoing()
	if w.GetTotal() > 0 {
		text += fmt.Sprintf(": %s of about %s (%d %%)", Count(w.GetDone()), Count(w.GetTotal()), w.GetDone()*100/w.GetTotal())
	} else if w.GetDone() > 0 {
		text += ": " + Count(w.GetDone())
	}
	return strings.TrimPrefix(text, ": ") + TimeLeft(w)
}

// TimeLeft returns the time left, or "" if it is unknown.
func TimeLeft(w *dbv1.WorkProgress) string {
	if w == nil || w.EtaSeconds == nil {
		return ""
	}
	return ", about " + Seconds(w.GetEtaSeconds()) + " left"
}
