package view

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
)

// many is the sample with so many shards, most of which wait for nothing.
func many(shards int) *dbv1.Deployment {
	d := clitest.Sample()
	all := d.Progress.Shards
	d.Progress.Shards = all[:min(shards, len(all))]
	for i := len(all); i < shards; i++ {
		d.Progress.Shards = append(d.Progress.Shards, &dbv1.ShardProgress{Shard: int32(i), State: "ready", Owner: "controller-1"})
	}
	return d
}

// fakeTerminal is a screen of a size that understands what a view sends.
type fakeTerminal struct {
	t             *testing.T
	width, height int
	rows          []string
	row, col      int
	scrolled      int
	wraps         bool
}

func newTerminal(t *testing.T, width, height int) *fakeTerminal {
	return &fakeTerminal{t: t, width: width, height: height, rows: make([]string, height), wraps: true}
}

var escape = regexp.MustCompile(`^\x1b\[(\??)(\d*)([A-Za-z])`)

func (v *fakeTerminal) Write(b []byte) (int, error) {
	for text := string(b); text != ""; {
		if m := escape.FindStringSubmatch(text); m != nil {
			v.control(m[1]+m[3], m[2])
			text = text[len(m[0]):]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch r {
		case '\r':
			v.col = 0
		case '\n':
			v.down()
		default:
			v.put(r)
		}
	}
	return len(b), nil
}

func (v *fakeTerminal) control(what, number string) {
	n, _ := strconv.Atoi(number)
	switch what {
	case "A":
		if n > v.row {
			v.t.Errorf("it goes back %d lines from line %d", n, v.row)
		}
		v.row = max(0, v.row-n)
	case "H":
		v.row, v.col = 0, 0
	case "J":
		if n == 2 {
			clear(v.rows)
			return
		}
		v.rows[v.row] = string([]rune(v.rows[v.row])[:min(v.col, utf8.RuneCountInString(v.rows[v.row]))])
		clear(v.rows[v.row+1:])
	case "?l":
		v.wraps = false
	case "?h":
		v.wraps = true
	default:
		v.t.Errorf("unknown sequence %s%s", number, what)
	}
}

func (v *fakeTerminal) down() {
	if v.row++; v.row == v.height {
		v.rows, v.row = append(v.rows[1:], ""), v.height-1
		v.scrolled++
	}
}

func (v *fakeTerminal) put(r rune) {
	if v.col >= v.width {
		v.t.Errorf("a line is wider than %d: %q", v.width, v.rows[v.row])
		if v.wraps {
			v.col = 0
			v.down()
		}
	}
	v.rows[v.row] += string(r)
	v.col++
}

// shown is what stands there.
func (v *fakeTerminal) shown() string {
	return strings.TrimRight(strings.Join(v.rows, "\n"), "\n") + "\n"
}

// TestTheViewFitsTheTerminal, whatever its size and however many shards there are: each frame
// takes the place of the one before it, nothing is pushed out of sight, and what the upgrade
// waits for is there as soon as there is room for anything.
func TestTheViewFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, height := range []int{1, 2, 3, 5, 8, 12, 24, 60} {
		for _, width := range []int{1, 40, 80, 250} {
			for _, shards := range []int{0, 1, 17, 1024} {
				t.Run(fmt.Sprintf("%dx%d, %d shards", width, height, shards), func(t *testing.T) {
					t.Parallel()
					d := many(shards)
					v := newTerminal(t, width, height)
					s := &Screen{w: v, size: func() (int, int) { return width, height }}
					for _, d := range []*dbv1.Deployment{clitest.Switched(), d, many(2), d} {
						s.Note("the controller does not answer; retrying")
						if text := v.shown(); width == 80 && height > 2 && !strings.HasSuffix(text, "retrying\n") {
							t.Errorf("it is not said:\n%s", text)
						}
						if err := s.Draw(d); err != nil {
							t.Fatal(err)
						}
						if height > 1 && v.shown() != frame(d, width, height) {
							t.Fatalf("there stands\n%s\nand not\n%s", v.shown(), frame(d, width, height))
						}
					}
					if v.scrolled > 0 {
						t.Errorf("it scrolls by %d lines", v.scrolled)
					}
					text := v.shown()
					for label, from := range map[string]int{"upgrade": 3, "readiness": 5, "copied": 12, "SHARD": 24} {
						if label == "SHARD" && shards == 0 || height < from || width < 40 {
							continue
						}
						if !strings.Contains(text, "  "+label) {
							t.Errorf("nothing of %q:\n%s", label, text)
						}
					}
				})
			}
		}
	}
}

// TestTheViewOfAnotherSize is drawn anew: what the terminal has made of the old frame is not
// known.
func TestTheViewOfAnotherSize(t *testing.T) {
	t.Parallel()
	v := newTerminal(t, 100, 30)
	s := &Screen{w: v, size: func() (int, int) { return v.width, v.height }}
	for _, width := range []int{100, 60} {
		v.width = width
		if err := s.Draw(clitest.Sample()); err != nil {
			t.Fatal(err)
		}
	}
	if v.shown() != frame(clitest.Sample(), 60, 30) {
		t.Errorf("there stands\n%s", v.shown())
	}
}

// TestManyShardsAreFolded: those that wait for something are shown, the others counted.
func TestManyShardsAreFolded(t *testing.T) {
	t.Parallel()
	text := frame(many(1000), 160, 40)
	for _, want := range []string{"copy of 2 ranges", "changes that are not applied", "more shards: 9"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
	if text := frame(many(1000), 160, 12); !strings.Contains(text, "shards: 998 ready, 1 copying, 1 following") {
		t.Errorf("on a low terminal:\n%s", text)
	}
}

// TestWhatIsLongIsWrapped where there is room for it.
func TestWhatIsLongIsWrapped(t *testing.T) {
	t.Parallel()
	text := frame(many(0), 60, 60)
	if strings.Contains(text, "…") {
		t.Errorf("something is cut though there is room:\n%s", text)
	}
	for _, want := range []string{"the switch waits for", "holds at ready", "proved for"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
}
