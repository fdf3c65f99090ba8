package terminal

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// TestProgressOnATerminal is one line that is drawn again, never wraps, and is gone at the end.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := NewProgress(&b)
		p.width = 30
		p.Show("", "compared 10 groups")
		time.Sleep(65 * time.Second)
		p.Show("", "compared 10,000 groups, 7 % of about 20,000 records")
		p.End()
		p.End()
		const want = "\r\x1b[Kcompared 10 groups\r\x1b[Kcompared 10,000 groups, 7 % …\r\x1b[K"
		if b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	})
}

// TestProgressElsewhere is a line now and then, the first at once.
func TestProgressElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := NewProgress(&b)
		for i := range 24 {
			p.Show("", "compared "+Count(int64(i)*1000))
			time.Sleep(500 * time.Millisecond)
		}
		p.Show("", "")
		p.End()
		p.Show("again", "compares again")
		if want := "compared 0\ncompared 10,000 (5s so far)\ncompared 20,000 (10s so far)\ncompares again (12s so far)\n"; b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	})
}

func TestWorkText(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]*dbv1.WorkProgress{
		"": nil,
		"copies: 1,500 of about 3,000 (50 %), about 2m5s left": {Doing: "copies", Done: 1500, Total: 3000, EtaSeconds: new(int64(125))},
		"counts: 7":     {Doing: "counts", Done: 7},
		"checks spaces": {Doing: "checks spaces"},
	} {
		if got := WorkText(w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
