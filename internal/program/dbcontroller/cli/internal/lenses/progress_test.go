package lenses

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/transform/lens/lint"
)

// TestLintSaysHowFarItIs: of a sample that takes long to read, by what of it was read.
func TestLintSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		o := &opened{samples: []lint.Sample{{Kind: "orders", Source: &slow{left: 2000}}}, parts: map[string]func(int64) float64{"orders": partOf(2000)}}
		o.showing(terminal.NewProgress(&b))
		for {
			if _, err := o.samples[0].Source.Next(t.Context()); err != nil {
				break
			}
		}
		const want = "read 513 records of orders, 25 %, about 15s left (5s so far)\nread 1,025 records of orders, 51 %, about 10s left (10s so far)\n" +
			"read 1,537 records of orders, 76 %, about 5s left (15s so far)\nread 2,000 records of orders, and tries them (20s so far)\n"
		if b.String() != want {
			t.Errorf("%s\nwant %s", b.String(), want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := o.samples[0].Source.Next(ctx); exit.Of(err) != exit.Interrupted {
			t.Errorf("interrupted: %v", err)
		}
	})
}

// slow is a sample of which a record takes 10 ms.
type slow struct{ left int }

func (s *slow) Next(context.Context) (bson.Raw, error) {
	if s.left == 0 {
		return nil, io.EOF
	}
	s.left--
	time.Sleep(10 * time.Millisecond)
	return bson.Raw{}, nil
}
