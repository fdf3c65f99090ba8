package browser

import (
	"net/url"
	"testing"
)

// unanswered are the browser's own errors about a controller that was killed. 401 is the answer before
// the login.
var unanswered = []string{"net::ERR_", "401"}

// TestUpgradeByClicks goes through a whole upgrade and its rollback in a browser. A record whose key
// is a script stays text, and when the page's controller dies the page goes on with the other one.
func TestUpgradeByClicks(t *testing.T) {
	b := open(t)
	s := start(t)
	b.visit(s.addresses[1] + "/ui/")
	b.until("the login", "document.querySelector('#token')")
	b.accessible("the login")
	b.login("wrong-token-of-nobody")
	b.sees("the bearer token is not known here")
	b.visit(s.addresses[1] + "/ui/")
	eval[bool](b, "sessionStorage.clear() || true")
	b.visit(s.addresses[1] + "/ui/")
	b.login(operatorToken)
	b.sees("shop.example.com in eu")
	b.sees("token:ann")
	t.Logf("first paint after %.0f ms", eval[float64](b, "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"))
	b.shot("overview")
	b.accessible("the overview")
	b.click("main a[href^='#/d/']")

	b.verb("begin", "copy v1 to v2")
	b.sees("INITIAL_SYNCING")
	b.sees(hostile) // as text
	b.until("the three charts", "document.querySelectorAll('#charts .chart canvas').length === 3")
	b.until("the sizes of kinds", "/\\d+, [\\d.]+ (bytes|KiB)/.test(document.querySelector('#versions td:last-child')?.innerText)")
	b.shot("deployment")
	b.size(390, 844)
	b.dark(true)
	b.shot("phone-dark")
	b.accessible("a deployment on a phone in dark mode")
	b.size(1300, 900)
	b.dark(false)
	b.accessible("a deployment")
	b.click("#parked td button")
	b.until("the preview of the waiver", "document.querySelector('dialog .effects')")
	b.accessible("a dialog")
	b.click("#act")
	b.until("the waiver", "document.querySelector('#parked td .badge')?.innerText === 'waived'")

	b.verb("pause", "pause")
	b.sees("Bulk work is paused")
	b.verb("resume", "")
	b.until("the parts of the predicted pause", "/\\(hold \\d+ ms/.test(document.querySelector('#readiness').innerText)")
	// What the controller has kept is there when the page is opened anew.
	b.visit("about:blank")
	b.visit(s.addresses[1] + "/ui/")
	b.click("main a[href^='#/d/']")
	b.until("the samples of the controller", "performance.getEntriesByType('resource').some((r) => r.name.endsWith('/ListSamples') && r.responseStatus === 200)")
	b.verb("switch", "switch")
	b.sees("v2 is current, epoch 2")
	b.until("the end of the upgrade on the page", "document.querySelector('#verb-rollback')")
	b.clean(unanswered...)

	s.kill(t, 1)
	b.sees("does not answer")
	b.until("a connection to the other controller", "document.getElementById('live').dataset.state === 'live'")
	b.verb("rollback", "v1")
	b.sees("v1 is current, epoch 3")
	b.sees("a rollback")
	b.clean(unanswered...)
	if eval[bool](b, "window.hacked !== undefined") {
		t.Error("a record ran as a script")
	}
	if d, err := get(t, s.addresses[0]); err != nil || d.CurrentVersion != "v1" {
		t.Errorf("the deployment is at %+v, %v", d, err)
	}

	// A viewer sees the same, and no verb.
	b.click("#who button")
	b.login(viewerToken)
	b.sees("token:vic may look at everything")
	if eval[bool](b, "document.querySelector('[id^=verb-], #parked button') !== null") {
		t.Error("a viewer has verbs")
	}
	b.clean(unanswered...)
}

// TestUnknownDeployment shows the controller's reason, also for a name that is a script.
func TestUnknownDeployment(t *testing.T) {
	b := open(t)
	s := start(t)
	b.visit(s.addresses[0] + "/ui/#/d/" + url.PathEscape("<img src=x onerror=window.hacked=1>"))
	b.login(operatorToken)
	b.sees("This view ended")
	if eval[bool](b, "window.hacked !== undefined") {
		t.Error("the address ran as a script")
	}
	// An address that was cut within an escape. Another one works afterwards.
	b.visit(s.addresses[0] + "/ui/#/d/%")
	b.sees("the address of this view names nothing: %")
	b.visit(s.addresses[0] + "/ui/#/")
	b.sees("None. A rollout upgrades many deployments")
	b.clean("401", "400", "404")
}
