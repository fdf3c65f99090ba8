package browser

import "testing"

// TestOtherVerbsByClicks uses the verbs that a plain upgrade does not need, each by its dialog.
func TestOtherVerbsByClicks(t *testing.T) {
	b := open(t)
	s := start(t)
	b.visit(s.addresses[0] + "/ui/")
	b.login(operatorToken)
	b.click("main a[href^='#/d/']")

	b.shows("plan", "v1 → v2")
	b.opens("begin")
	b.set("#field-rate", "5000")
	b.makes("copy v1 to v2")
	b.sees("Waive all of customers")
	b.opens("policy")
	b.set("#field-maxPause", "1500")
	b.makes("pause")
	b.sees("pause at most 1.5 s")
	b.opens("pace")
	b.set("#field-maxRate", "4000")
	b.makes("4000")
	b.sees("at most 4,000/s")

	// All parked records of a kind, confirmed by their number.
	b.click("#parked > button")
	b.until("the question for their number", "document.querySelector('#confirm')")
	b.refusesConfirmation("2")
	b.confirms()
	b.until("the waiver", "document.querySelector('#parked td .badge')?.innerText === 'waived'")

	b.sees("hold at ready")
	b.until("the end of the copy", "document.querySelector('#upgrade').innerText.includes('8 of 8 ready')")
	b.shows("verify", "equal")
	b.accessible("a deployment with waived records")

	b.opens("abort")
	b.set("#field-reason", "the page's test")
	b.makes("v1 stays the current version")
	b.sees("No upgrade runs")
	b.sees("the page's test")
	b.clean("401")

	// There again, and the version that was left is retired.
	b.opens("begin")
	b.set("#field-hold", "")
	b.makes("copy v1 to v2")
	b.sees("v2 is current, epoch 2")

	// Somebody removes the fence of the old collection and writes to it.
	s.breach(t)
	b.sees("Breach of the fence of customers of v1")
	b.verb("breaches", "")
	b.until("the end of the breach", "!document.querySelector('#verb-breaches')")

	b.opens("complete")
	b.set("#field-ignore", "on")
	// Without a time the collections would be dropped at once.
	b.set("#field-keep", "")
	if eval[bool](b, "document.querySelector('#field-keep').checkValidity()") {
		t.Error("collections may be kept for no time by leaving it out")
	}
	b.set("#field-keep", "24")
	b.preview()
	b.refusesConfirmation(deployment)
	b.confirms()
	b.sees("v1 was retired")
	b.clean("401")
	b.accessible("a deployment without an upgrade")
}

// TestTryARecord moves pasted records through the lens, and marks what differs.
func TestTryARecord(t *testing.T) {
	b := open(t)
	s := start(t)
	b.visit(s.addresses[0] + "/ui/")
	b.login(operatorToken)
	b.click("main a[href^='#/d/']")
	b.click("main a[href^='#/lens/']")
	b.set("#lens-record", `{"_id": "c-1", "mail": "a@example.com", "size": 5}`)
	b.click("#lens-try")
	b.until("the record in v2", "document.querySelector('#tried ins')?.innerText.includes('email')")
	b.until("the record in v1", "document.querySelector('#tried del')?.innerText.includes('mail')")
	b.until("the verdict", "document.querySelector('#tried-back .badge')?.innerText === 'the same'")
	b.accessible("a record's way")
	b.shot("lens")
	// One of the database, with its values.
	b.set("#lens-record", "")
	b.click("#lens-sample")
	b.until("a record of the database", "document.querySelector('#lens-record').value.includes('mail')")
	b.click("#lens-try")
	b.until("the same record in v2", "document.querySelector('#tried ins')?.innerText.includes('email')")
	// A hostile record stays text, and a refusal names the field.
	b.set("#lens-record", `{"_id": "<script>window.hacked=1</script>", "size": "<img src=x onerror=window.hacked=1>"}`)
	b.click("#lens-try")
	b.until("the refusal", "document.querySelector('#tried .error')?.innerText.includes('size')")
	b.set("#lens-record", `{"_id": 1`)
	b.click("#lens-try")
	b.until("the mistake", "document.querySelector('form .error').innerText.includes('record 1')")
	if eval[bool](b, "window.hacked !== undefined") {
		t.Error("a record ran as a script")
	}
	b.clean("401", "400")
}
