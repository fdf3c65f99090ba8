package browser

import (
	"fmt"
	"testing"
)

// TestRolloutByClicks begins a rollout over one deployment, stops it when it has upgraded, returns it
// and forgets it.
func TestRolloutByClicks(t *testing.T) {
	b := open(t)
	s := start(t)
	b.visit(s.addresses[0] + "/ui/")
	b.login(operatorToken)
	b.opens("rollout")
	b.set("#field-name", "to-v2")
	b.set("#field-target", "v2")
	b.set("#field-waves", "# canary\n"+deployment+"\n")
	b.set("#field-hold", "3600")
	b.set("#field-limit", "7200")
	b.set("#field-checks", "none")
	b.preview()
	b.until("the refusal of an unknown check", "document.querySelector('dialog .error')?.innerText.includes('rollouts.checks')")
	b.set("#field-checks", "")
	b.makes("upgrade 1 deployment to v2 in 1 wave")
	state := func(want string) {
		b.until("the state "+want, fmt.Sprintf("document.querySelector('.head .badge').innerText === %q", want))
	}
	b.click("#rollouts a[href='#/r/to-v2']")
	b.sees("its upgrade")
	b.sees("token:ann (page)")
	// The upgrade cannot switch before its parked record is waived.
	b.verb("pause", "begin no further deployment")
	state("paused")
	b.verb("resume", "continue with wave 1 of 1")
	b.accessible("a rollout")
	b.shot("rollout")
	b.click("#waves a[href^='#/d/']")
	b.click("#parked td button")
	b.act()
	b.sees("v2 is current, epoch 2")
	b.visit(s.addresses[0] + "/ui/#/r/to-v2")
	b.sees("wave 1 of 1, gate")
	b.verb("back", "abort or roll back")
	state("rolled back")
	if d, err := get(t, s.addresses[0]); err != nil || d.CurrentVersion != "v1" {
		t.Errorf("the deployment is at %+v, %v", d, err)
	}
	b.verb("forget", "")
	b.sees("None. A rollout upgrades many deployments")
	b.clean("401", "400")
}
