package api_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/syncer"
)

// stream reads the messages of a Connect stream, as in the service's doc.
func (a served) stream(ctx context.Context, method, body string) (next func(v any) error, end func(), err error) {
	envelope := append([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+method, bytes.NewReader(append(envelope, body...)))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := a.client.Do(req) //nolint:bodyclose // the caller closes it by the second result
	if err != nil {
		return nil, nil, err
	}
	next = func(v any) error {
		var head [5]byte
		if _, err := io.ReadFull(res.Body, head[:]); err != nil {
			return err
		}
		b := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(res.Body, b); err != nil {
			return err
		}
		if head[0]&2 != 0 {
			var e struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal(b, &e); err != nil {
				return err
			}
			if e.Error.Code == "" {
				return io.EOF
			}
			return errors.New(e.Error.Code + ": " + e.Error.Message)
		}
		return json.Unmarshal(b, v)
	}
	return next, func() { _ = res.Body.Close() }, nil
}

func TestWatchDeployment(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serve(t, w)
	next, end, err := a.stream(t.Context(), "WatchDeployment", "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	type status struct {
		UpgradeState *struct{ ReadyShards []int }
		Progress     struct{ Copied string }
		Servers      []struct{ ID string }
	}
	var got status
	if err := next(&got); err != nil || got.UpgradeState != nil {
		t.Fatalf("first %+v, %v", got, err)
	}
	start := time.Now()
	w.Begin(t)
	l := deploymenttest.Lease(t, w.Coord)
	if err := w.Store.Register(t.Context(), l, deploymenttest.Server("bbs-1")); err != nil {
		t.Fatal(err)
	}
	messages := 0
	for i := range 100 {
		if err := w.Store.PublishProgress(t.Context(), "ctl-1", []syncer.Progress{{Shard: 0, Copied: int64(i + 1)}}, l.ID()); err != nil {
			t.Fatal(err)
		}
	}
	for got.Progress.Copied != "100" || got.UpgradeState == nil || len(got.Servers) != 1 {
		got = status{}
		if err := next(&got); err != nil {
			t.Fatal(err)
		}
		messages++
	}
	if most := 2 + int(time.Since(start)/(400*time.Millisecond)); messages > most {
		t.Errorf("%d messages in %s", messages, time.Since(start))
	}
	next, end, err = a.stream(t.Context(), "WatchDeployment", `{"name":"services/none/deployments/x"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := next(&got); err == nil || err.Error() != "not_found: services/none/deployments/x: deployment does not exist" {
		t.Errorf("unknown deployment: %v", err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	a := serve(t, w)
	type answer struct {
		Progress struct{ Compared string }
		Report   *struct {
			Equal                        bool
			Compared, Mismatched, Waived string
			Examples, WaivedExamples     []string
		}
	}
	next, end, err := a.stream(t.Context(), "Verify", "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var got answer
	<-a.verifier.started
	for got.Progress.Compared != "2" {
		if err := next(&got); err != nil || got.Report != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	second, endSecond, err := a.stream(t.Context(), "Verify", "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer endSecond()
	if err := second(&got); err == nil || err.Error() != "failed_precondition: verify: a comparison runs already: wait until it ends" {
		t.Errorf("a second one: %v", err)
	}
	a.verifier.report = verify.Report{Compared: 7, Mismatched: 1, Examples: []string{"packages/p-1"}, Waived: 2, WaivedExamples: []string{"p-2", "p-3"}}
	close(a.verifier.finish)
	for got.Report == nil {
		if err := next(&got); err != nil {
			t.Fatal(err)
		}
	}
	if got.Report.Equal || got.Report.Compared != "7" || len(got.Report.Examples) != 1 ||
		got.Report.Waived != "2" || len(got.Report.WaivedExamples) != 2 {
		t.Errorf("report %+v, %v", got.Report, err)
	}
	if err := next(&got); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

// TestVerifyReportsShapes: indexes and options that differ make versions differ, also where all
// records are equal. What a rollback will lack does not.
func TestVerifyReportsShapes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		report verify.Report
		equal  bool
	}{
		"equal":  {verify.Report{Compared: 7}, true},
		"shapes": {verify.Report{Compared: 7, Shapes: []string{"index n_1 is missing"}}, false},
		"lacks":  {verify.Report{Compared: 7, Lacks: []string{"index n_1"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := serve(t, deploymenttest.New(t))
			a.verifier.report = tc.report
			close(a.verifier.finish)
			next, end, err := a.stream(t.Context(), "Verify", "{}")
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			var got struct {
				Report *struct {
					Equal                 bool
					Shapes, RollbackLacks []string
				}
			}
			for got.Report == nil {
				if err := next(&got); err != nil {
					t.Fatal(err)
				}
			}
			if r := got.Report; r.Equal != tc.equal || !slices.Equal(r.Shapes, tc.report.Shapes) || !slices.Equal(r.RollbackLacks, tc.report.Lacks) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestStoppingEndsLongCalls: nobody keeps a controller from stopping.
func TestStoppingEndsLongCalls(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	errs := make(chan string, 2)
	parent := t
	t.Run("controller", func(t *testing.T) {
		a := serve(t, w)
		d, err := w.Store.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next, end, err := a.stream(context.Background(), "WatchDeployment", "{}")
		if err != nil {
			t.Fatal(err)
		}
		parent.Cleanup(end)
		if err := next(&struct{}{}); err != nil {
			t.Fatal(err)
		}
		go func() { errs <- next(&struct{}{}).Error() }()
		polling, end, err := a.stream(context.Background(), "Verify", "{}")
		if err != nil {
			t.Fatal(err)
		}
		parent.Cleanup(end)
		if err := polling(&struct{}{}); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, answer, err := a.call(context.Background(), "GetLocation", fmt.Sprintf(`{"waitRevision": "%d", "timeoutMs": 300000}`, d.Revision))
			errs <- fmt.Sprint(string(answer), err)
		}()
		for <-a.arrived != "GetLocation" {
		}
	})
	for range 2 {
		if e := <-errs; !strings.Contains(e, "unavailable") || !strings.Contains(e, "this controller is stopping: retry") {
			t.Errorf("ended with %s", e)
		}
	}
}
