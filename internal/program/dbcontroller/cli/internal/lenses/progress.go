package lenses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/transform/lens/lint"
)

// counted is a source that shows how much of it was read.
type counted struct {
	lint.Source
	kind  string
	part  func(records int64) float64 // share read, 0 to 1; 0: unknown
	shown *terminal.Progress

	records atomic.Int64
	start   time.Time
}

// showEach is the number of records between two updates of the progress line.
const showEach = 256

func (c *counted) Next(ctx context.Context) (bson.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // reading a file does not notice cancellation
	}
	doc, err := c.Source.Next(ctx)
	n := c.records.Load()
	if c.start.IsZero() {
		c.start = time.Now()
	}
	switch {
	case err == nil:
		if n = c.records.Add(1); n%showEach == 1 {
			c.shown.Show("reads "+c.kind, c.text(n))
		}
	case errors.Is(err, io.EOF):
		c.shown.Show("tries "+c.kind, fmt.Sprintf("read %s of %s, and tries them", plural(n, "record"), c.kind))
	}
	return doc, err
}

// text returns the number of records read and the time left at the same rate.
func (c *counted) text(n int64) string {
	text := fmt.Sprintf("read %s of %s", plural(n, "record"), c.kind)
	part := c.part(n)
	if part <= 0 || part > 1 {
		return text
	}
	text += fmt.Sprintf(", %d %%", int(part*100))
	// An estimate from less than a second of reading would jump.
	if took := time.Since(c.start); took >= time.Second && part < 1 {
		text += ", about " + time.Duration(float64(took)*(1-part)/part).Round(time.Second).String() + " left"
	}
	return text
}

// partOfFile returns the share of a file that was read. It counts bytes of the file, compressed or
// not.
func partOfFile(f *os.File) func(int64) float64 {
	info, err := f.Stat()
	return func(int64) float64 {
		at, seekErr := f.Seek(0, io.SeekCurrent)
		if err != nil || seekErr != nil || info.Size() == 0 {
			return 0
		}
		return float64(at) / float64(info.Size())
	}
}

// partOf returns the share of an estimated number of records.
func partOf(total int64) func(int64) float64 {
	return func(n int64) float64 {
		if total <= 0 {
			return 0
		}
		return min(1, float64(n)/float64(total))
	}
}

// showing makes the samples report their progress to p.
func (o *opened) showing(p *terminal.Progress) {
	p.After = terminal.Interval // most samples are shorter and need no progress
	for i, s := range o.samples {
		part := o.parts[s.Kind]
		if part == nil {
			part = func(int64) float64 { return 0 }
		}
		o.samples[i].Source = &counted{Source: s.Source, kind: s.Kind, part: part, shown: p}
	}
}
