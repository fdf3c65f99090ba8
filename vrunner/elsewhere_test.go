package vrunner_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// TestForward: a write of another region's record goes there with its whole body, and its answer is the
// region's. It holds no pass meanwhile. What had an effect here, or only reads, stays.
func TestForward(t *testing.T) {
	t.Parallel()
	sent := map[string]string{}
	var hold chan struct{} // of the bubble
	cfg := vrunner.Config{HoldCap: time.Minute, Forward: func(w http.ResponseWriter, _ *http.Request, body []byte, region string) bool {
		if region == "nobody" {
			return false
		}
		sent[region] = string(body)
		<-hold
		w.WriteHeader(http.StatusTeapot)
		return true
	}}
	inBubble(t, cfg, func(ctx context.Context, w *world, s *service, r *vrunner.Runner, a *announced) {
		hold = make(chan struct{})
		s.instead = func(version string, v *vrunner.View, r *http.Request) error {
			if r.URL.Path == "/effect" {
				if err := v.Write(r.Context(), []record.Mutation{{Kind: kindOf[version], Key: record.StringKey("effect"), Doc: doc("effect", "x")}}); err != nil {
					return err
				}
			}
			region := "eu"
			if r.URL.Path == "/refused" {
				region = "nobody"
			}
			vrunner.Elsewhere(r.Context(), region)
			return errors.New("another region owns it")
		}
		vrunner.Elsewhere(ctx, "eu") // outside of a request it does nothing
		done := send(ctx, r, put("a", "whole"))
		if sent["eu"] != "whole" {
			t.Errorf("sent %q", sent)
		}
		// The other region is slow, and a switch here does not wait for it.
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		if said := a.last(); said.AckID == "" {
			t.Errorf("the hold is not acknowledged: %+v", said)
		}
		close(hold)
		if res := <-done; res.Code != http.StatusTeapot || res.Body.Len() != 0 {
			t.Errorf("answered %d %s", res.Code, res.Body)
		}
		w.until(ctx, open("v2"))
		synctest.Wait()
		clear(sent)
		expect(t, "nobody is there", send(ctx, r, put("refused", "x")), http.StatusConflict, "v2")
		expect(t, "it has written", send(ctx, r, put("effect", "x")), http.StatusConflict, "v2")
		if len(sent) != 0 {
			t.Errorf("sent %q", sent)
		}
	})
}

// TestChanging: the mark of a context is seen below it only.
func TestChanging(t *testing.T) {
	t.Parallel()
	if ctx := t.Context(); vrunner.IsChanging(ctx) || !vrunner.IsChanging(vrunner.Changing(ctx)) {
		t.Error("the mark is wrong")
	}
}
