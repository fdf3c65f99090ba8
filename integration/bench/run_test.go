package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/integration/bench/figures"
)

// TestRunGoesOn: whatever scenarios do, all others have their runs, and the rows say what was wrong.
func TestRunGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{settings: settings{runs: 3, deadline: time.Minute, budget: time.Hour, out: ""}, begun: time.Now()}
		b.rows = figures.Rows()
		var mu sync.Mutex // one of them is left behind
		var order []string
		released := make(chan struct{})
		made := func(row string, run func(ctx context.Context, round int) error) scenario {
			return scenario{name: row, rows: []string{row}, run: func(ctx context.Context, b *bench, round int) error {
				mu.Lock()
				order = append(order, row)
				mu.Unlock()
				if err := run(ctx, round); err != nil {
					return err
				}
				b.figure(row, float64(round+1), "")
				return nil
			}}
		}
		once := made("workload.real", func(context.Context, int) error { return nil })
		once.once = true
		b.run(t.Context(), []scenario{
			made("copy.fixed", func(context.Context, int) error { return nil }),
			made("copy.lens", func(_ context.Context, round int) error {
				if round == 1 {
					return errors.New("planted")
				}
				return nil
			}),
			made("update.rate", func(context.Context, int) error { panic("planted") }),
			made("etcd.rest", func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }),
			made("etcd.copying", func(context.Context, int) error { <-released; return errors.New("late") }),
			once,
			made("kinds.held", func(context.Context, int) error {
				t.Error("a scenario without a row that was asked for has run")
				return nil
			}),
		}, regexp.MustCompile("^[^k]"))
		close(released)
		synctest.Wait()
		if want := "copy.fixed copy.lens update.rate etcd.rest etcd.copying workload.real workload.real workload.real copy.fixed"; !strings.HasPrefix(strings.Join(order, " "), want) {
			t.Errorf("the order is %v, want %s ...", order, want)
		}
		f := b.file()
		for row, want := range map[string]struct {
			runs int
			says string
		}{
			"copy.fixed": {3, ""}, "copy.lens": {2, "run 2 failed: planted"}, "update.rate": {0, "panic: planted"},
			"etcd.rest": {0, "not done after 1m0s"}, "etcd.copying": {0, "did not stop"}, "workload.real": {3, ""},
		} {
			r, _ := f.Row(row)
			if len(r.Runs) != want.runs || !strings.Contains(r.Missing+r.Note, want.says) {
				t.Errorf("%s has %d runs, and says %q; want %d, %q", row, len(r.Runs), r.Missing+r.Note, want.runs, want.says)
			}
		}
	})
}

// TestBudget: nothing begins that would not end in time, and rows say why they have fewer runs.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{settings: settings{runs: 3, deadline: time.Hour, budget: 25 * time.Minute}, begun: time.Now()}
		b.rows = figures.Rows()
		b.run(t.Context(), []scenario{{name: "long", rows: []string{"copy.fixed"}, run: func(ctx context.Context, b *bench, _ int) error {
			rest(ctx, 10*time.Minute)
			b.figure("copy.fixed", 1, "")
			return nil
		}}}, regexp.MustCompile(""))
		if r, _ := (&figures.File{Rows: b.rows}).Row("copy.fixed"); len(r.Runs) != 2 || !strings.Contains(r.Note, "was over before all runs") {
			t.Errorf("%d runs, and it says %q; want the two that fit", len(r.Runs), r.Note)
		}
		if spent := time.Since(b.begun); spent > b.budget {
			t.Errorf("it took %v", spent)
		}
	})
}

// TestHangsEndInTime: whatever hangs, the whole ends about when it must.
func TestHangsEndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{settings: settings{runs: 3, deadline: 10 * time.Minute, budget: 15 * time.Minute}, begun: time.Now()}
		b.rows = figures.Rows()
		hang := func(ctx context.Context, _ *bench, _ int) error { <-ctx.Done(); return ctx.Err() }
		var all []scenario
		for i := range 5 {
			all = append(all, scenario{name: fmt.Sprint("hangs ", i), rows: []string{"copy.fixed"}, run: hang})
		}
		b.run(t.Context(), all, regexp.MustCompile(""))
		if spent := time.Since(b.begun); spent > b.budget+time.Minute {
			t.Errorf("it took %v, with %v to spend", spent, b.budget)
		}
	})
}

// TestScenariosHaveRows: every row is measured by one scenario, or says from the beginning why not.
func TestScenariosHaveRows(t *testing.T) {
	t.Parallel()
	s := &sheet{rows: append(figures.Rows(), peerRows()...)}
	neverMeasured(s)
	by := map[string]int{}
	for _, sc := range scenarios() {
		for _, row := range sc.rows {
			by[row]++
		}
	}
	for _, r := range s.rows {
		if n := by[r.Name]; n > 1 || n == 0 && r.Missing == "" {
			t.Errorf("%s is measured by %d scenarios, and says %q", r.Name, n, r.Missing)
		}
		delete(by, r.Name)
	}
	if len(by) > 0 {
		t.Errorf("scenarios measure rows that there are not: %v", by)
	}
}

// TestMissingProgram: it is said before anything is started.
func TestMissingProgram(t *testing.T) {
	t.Parallel()
	b, err := open(t.Context(), settings{programs: t.TempDir()})
	if b != nil || err == nil || !strings.HasPrefix(err.Error(), "no program dbcontroller: ") || !strings.HasSuffix(err.Error(), "(make build)") {
		t.Errorf("%v, %v", b, err)
	}
}
