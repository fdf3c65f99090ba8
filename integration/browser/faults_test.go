package browser

import (
	"fmt"
	"testing"
)

// fakes lets a function of the test answer calls in place of a controller: it gets the method and the
// request, and returns a Response, undefined for the controller's own answer, or throws.
func (b *tab) fakes(script string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`(() => {
		window.realFetch ||= window.fetch;
		const fake = %s;
		window.fetch = async (at, options) => {
			const method = String(at).split('/').at(-1);
			const request = typeof options?.body === 'string' ? JSON.parse(options.body) : {};
			return await fake(method, request, () => window.realFetch(at, options)) || window.realFetch(at, options);
		};
		return true;
	})()`, script))
}

// TestManyDeployments: of many deployments each is looked at after a while, and none is called good
// before.
func TestManyDeployments(t *testing.T) {
	b := open(t)
	s := start(t)
	b.visit(s.addresses[0] + "/ui/")
	b.until("the login", "document.querySelector('#token')")
	// A character that no header can have is no controller that does not answer.
	eval[bool](b, fmt.Sprintf("(document.querySelector('#token').value = %q, true)", "é"+operatorToken))
	b.click("form.login button[type=submit]")
	b.sees("A token has no spaces")
	eval[bool](b, "(document.querySelector('#token').value = '', true)")
	b.login(operatorToken)
	b.sees("shop.example.com in eu")

	const badges = "[...document.querySelectorAll('main td .badge')].filter((e) => e.innerText === %q).length === %d"
	b.fakes(`(method, request) => {
		const one = (i) => ({ name: 'services/s' + i + '/deployments/d', currentVersion: 'v1', epoch: '1', revision: '1', ringSize: 8, controllers: [] });
		const answer = (json) => new Response(JSON.stringify(json), { headers: { 'Content-Type': 'application/json' } });
		if (method === 'ListDeployments') return answer({ deployments: Array.from({ length: 120 }, (_, i) => one(i)) });
		if (method !== 'GetDeployment') return undefined;
		if (!window.answers) throw new TypeError('no answer');
		const i = Number(request.name.match(/\d+/)[0]);
		return answer({ ...one(i), controllers: i === 119 ? [] : ['c'] });
	}`)
	b.until("nothing is known", fmt.Sprintf(badges, "not known", 120))
	eval[bool](b, "(window.answers = true)")
	b.until("the state of each", fmt.Sprintf(badges, "good", 119)+" && "+fmt.Sprintf(badges, "needs you", 1))
	b.sees("No controller is alive")
	b.clean("401", "net::ERR_")
}

// TestFaultsOfVerbs: an answer that is lost leaves the outcome unknown, a dialog that is closed hides no
// failure, and a preview is not confirmed by the click that asked for it.
func TestFaultsOfVerbs(t *testing.T) {
	b := open(t)
	s := start(t)
	b.visit(s.addresses[0] + "/ui/")
	b.login(operatorToken)
	b.click("main a[href^='#/d/']")
	b.verb("begin", "copy v1 to v2")
	b.sees("Waive all of customers")

	// The preview waits before it can be confirmed.
	eval[bool](b, `(() => {
		window.held = [];
		window.realTimeout = window.setTimeout;
		window.setTimeout = (f, ms, ...more) => ms === 600 ? window.held.push(f) : window.realTimeout(f, ms, ...more);
		return true;
	})()`)
	b.opens("pause")
	b.preview()
	if !eval[bool](b, "document.querySelector('#act').disabled") {
		t.Error("a second click would confirm what nobody has read")
	}
	eval[bool](b, "window.setTimeout = window.realTimeout, window.held.forEach((f) => f()), true")

	// The dialog is closed while the change is made, which then fails.
	b.fakes(`(method, request) => {
		if (method !== 'SetPace' || request.dryRun) return undefined;
		return new Promise((done) => { window.fail = () => done(new Response(JSON.stringify({ code: 'failed_precondition', message: 'it was not made' }), { status: 400 })); });
	}`)
	b.click("#act")
	b.until("the change", "window.fail")
	b.click("dialog .row button")
	b.until("the end of the dialog", "!document.querySelector('dialog')")
	eval[bool](b, "window.fail(), true")
	b.until("the failure", "document.querySelector('dialog[open]')?.innerText.includes('it was not made')")
	b.click("dialog .row button")

	// The answer is lost, and no controller answers a dry run.
	b.fakes(`async (method, request, send) => {
		if (method !== 'AbortUpgrade') return undefined;
		if (request.dryRun && !window.lost) return undefined;
		if (!request.dryRun) await send();
		window.lost = true;
		throw new TypeError('lost');
	}`)
	b.opens("abort")
	b.preview()
	b.click("#act")
	b.until("the unknown outcome", "document.querySelector('dialog[open]')?.innerText.includes('the outcome is unknown')")
	b.click("dialog .row button")
	b.sees("No upgrade runs")
	b.clean("401", "400")
}
