package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"dbcontroller.dev/integration/bench/figures"
)

// scenario measures related rows.
type scenario struct {
	name string
	rows []string
	// once: all its runs happen in the first round, because its setup is expensive.
	once bool
	// rounds limits the rounds in which it runs; 0: all.
	rounds int
	// deadline of one run; 0: the flag's.
	deadline time.Duration
	run      func(ctx context.Context, b *bench, round int) error
}

// sheet collects rows. Its methods may be called concurrently.
type sheet struct {
	mu   sync.Mutex
	rows []figures.Row
}

func (s *sheet) change(name string, by func(*figures.Row)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.rows, func(r figures.Row) bool { return r.Name == name })
	if i < 0 {
		panic("no row is called " + name) // programming error
	}
	by(&s.rows[i])
}

// figure adds the figure of one run, and states how it was measured.
func (s *sheet) figure(name string, value float64, how string, args ...any) {
	s.change(name, func(r *figures.Row) {
		r.Runs = append(r.Runs, round(value))
		r.Measured = fmt.Sprintf(how, args...)
	})
}

// against is figure with the limit of the same run.
func (s *sheet) against(name string, value, limit float64, how string, args ...any) {
	s.figure(name, value, how, args...)
	s.change(name, func(r *figures.Row) { r.Limits = append(r.Limits, round(limit)) })
}

// round drops insignificant digits, so that the files stay readable.
func round(v float64) float64 {
	const digits = 1000
	if math.Abs(v) > digits {
		return math.Round(v)
	}
	return math.Round(v*digits) / digits
}

// note adds a text to a row, once.
func (s *sheet) note(name, text string) {
	s.change(name, func(r *figures.Row) { r.Note = withNote(r.Note, text) })
}

func withNote(note, text string) string {
	if strings.Contains(note, text) {
		return note
	}
	return strings.TrimSpace(note + " " + text)
}

func (s *sheet) short(name, text string)   { s.change(name, func(r *figures.Row) { r.Short = text }) }
func (s *sheet) missing(name, text string) { s.change(name, func(r *figures.Row) { r.Missing = text }) }

// cutShort is the note of rows with fewer runs than requested.
const cutShort = "The time for the whole was over before all runs were made."

// grace is the time for clean-up after a run's deadline.
const grace = 45 * time.Second

// run runs the rounds of all scenarios with a row that matches only.
func (b *bench) run(ctx context.Context, all []scenario, only *regexp.Regexp) {
	all = slices.DeleteFunc(all, func(sc scenario) bool { return !slices.ContainsFunc(sc.rows, only.MatchString) })
	spent := map[string]time.Duration{}
	for round := range b.runs {
		for _, sc := range all {
			times := 1
			if sc.once {
				times = b.runs
			}
			if sc.once && round > 0 || sc.rounds > 0 && round >= sc.rounds || ctx.Err() != nil {
				continue
			}
			for i := range times {
				// A run that would not end in time gives its time to shorter ones.
				if left := b.budget - time.Since(b.begun); left < spent[sc.name] {
					b.say("%s: %v are left, run %d is not made", sc.name, left.Round(time.Second), round+i+1)
					for _, row := range sc.rows {
						b.change(row, func(r *figures.Row) {
							if r.Missing == "" { // otherwise more time would not have helped
								r.Note = withNote(r.Note, cutShort)
							}
						})
					}
					continue
				}
				begun := time.Now()
				err := b.runOnce(ctx, sc, round+i)
				spent[sc.name] = time.Since(begun)
				b.say("%s, run %d: %.1f s, %.1f minutes so far: %v", sc.name, round+i+1, spent[sc.name].Seconds(), time.Since(b.begun).Minutes(), err)
				if err != nil && ctx.Err() == nil {
					for _, row := range sc.rows {
						b.change(row, func(r *figures.Row) {
							// A row measured before the failure keeps its figure of this run.
							if len(r.Runs) < round+i+1 {
								r.Missing = brief(fmt.Sprintf("run %d failed: %v", round+i+1, err))
							}
						})
					}
				}
			}
		}
		// After each round, so that an interrupted benchmark keeps its figures.
		if f := b.file(); b.out != "" {
			if err := f.Write(b.out); err != nil {
				b.say("%v", err)
			}
		}
	}
}

// brief shortens a text to one line of a page.
func brief(text string) string {
	const most = 400
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + " ..."
	}
	return text
}

// runOnce runs a scenario once within its deadline, and abandons a run that does not return.
func (b *bench) runOnce(ctx context.Context, sc scenario, round int) error {
	deadline := sc.deadline
	if deadline == 0 {
		deadline = b.deadline
	}
	// Even if a run hangs, the whole benchmark must end about in time.
	const least = 20 * time.Second
	deadline = min(deadline, max(b.budget-time.Since(b.begun), least))
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			// A panic of one scenario must not lose the figures of all others.
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v", p)
			}
		}()
		done <- sc.run(ctx, b, round)
	}()
	select {
	case err := <-done:
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("not done after %v: %w", deadline, err)
		}
		return err
	// The goroutine is abandoned: it ignores its context, and cannot be stopped.
	case <-time.After(deadline + grace):
		return fmt.Errorf("not done after %v, and did not stop", deadline)
	}
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// file returns the figures measured so far.
func (b *bench) file() figures.File {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := figures.File{
		Name: b.named, Note: b.remark, Date: b.begun.UTC().Format(time.RFC3339), Took: round(time.Since(b.begun).Minutes()),
		Machine: b.machine, Versions: b.versions, Commands: []string{"make bench" + b.args()},
		Rows: slices.Clone(b.rows), Peers: b.known,
	}
	for i := range f.Rows {
		// A row with some runs has a figure, so its failure becomes a note.
		if len(f.Rows[i].Runs) > 0 && f.Rows[i].Missing != "" {
			f.Rows[i].Note, f.Rows[i].Missing = strings.TrimSpace(f.Rows[i].Note+" Not every run has a figure: "+f.Rows[i].Missing+"."), ""
		}
		f.Rows[i].Close()
	}
	return f
}

// args returns this process's flags in the form that make takes.
func (b *bench) args() string {
	if len(os.Args) < 2 {
		return ""
	}
	return fmt.Sprintf(" ARGS=%q", strings.Join(os.Args[1:], " "))
}
