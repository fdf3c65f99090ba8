package browser

import "fmt"

// opens opens a verb's dialog.
func (b *tab) opens(name string) {
	b.t.Helper()
	b.click("#verb-" + name)
	b.until("the dialog", "document.querySelector('dialog[open]')")
}

// set gives a field of the dialog a value. A box is checked unless the value is empty.
func (b *tab) set(field, value string) {
	b.t.Helper()
	b.until("the field "+field, fmt.Sprintf("document.querySelector(%q)", field))
	eval[bool](b, fmt.Sprintf(`(() => {
		const at = document.querySelector(%q);
		if (at.type === 'checkbox') at.checked = %[2]q !== ''; else at.value = %[2]q;
		at.dispatchEvent(new Event('input', { bubbles: true }));
		return true;
	})()`, field, value))
}

// preview asks for what the verb would do.
func (b *tab) preview() {
	b.t.Helper()
	b.click("dialog .row button[type=submit]:not(#act)")
	b.until("the preview", "document.querySelector('dialog .effects, dialog .error')")
}

// makes looks at the preview, which must contain effect, and makes the change.
func (b *tab) makes(effect string) {
	b.t.Helper()
	// A verb without fields shows its preview at once.
	if eval[bool](b, "Boolean(document.querySelector('dialog .row button[type=submit]:not(#act)'))") {
		b.preview()
	}
	b.until("the preview "+effect, fmt.Sprintf("document.querySelector('dialog .effects')?.innerText.includes(%q)", effect))
	b.act()
}

// act makes the change, and waits for its end.
func (b *tab) act() {
	b.t.Helper()
	b.click("#act")
	b.until("the end of the dialog", "!document.querySelector('dialog')")
}

// verb opens a verb's dialog, looks at its preview, and makes the change.
func (b *tab) verb(name, effect string) {
	b.t.Helper()
	b.opens(name)
	b.makes(effect)
}

// shows lets a verb that changes nothing report, and closes its dialog.
func (b *tab) shows(name, result string) {
	b.t.Helper()
	b.opens(name)
	b.click("dialog .row button[type=submit]")
	b.until("the report "+result, fmt.Sprintf("document.querySelector('dialog').innerText.includes(%q)", result))
	b.click("dialog .row button")
	b.until("the end of the dialog", "!document.querySelector('dialog')")
}

// refusesConfirmation checks that a wrong text does not confirm the change.
func (b *tab) refusesConfirmation(wrong string) {
	b.t.Helper()
	b.until("the question for a confirmation", "document.querySelector('#confirm')")
	b.set("#confirm", wrong)
	if !eval[bool](b, "document.querySelector('#act').disabled") {
		b.t.Errorf("%q confirms the change", wrong)
	}
}

// confirms types what the dialog asks for, and makes the change.
func (b *tab) confirms() {
	b.t.Helper()
	b.set("#confirm", eval[string](b, "document.querySelector('dialog .phrase').innerText.trim()"))
	b.act()
}
