package browser

import (
	"net/http"
	"strings"
	"testing"
)

// TestRemoveByClicks removes a deployment that was created by mistake. The page offers it only for
// that one.
func TestRemoveByClicks(t *testing.T) {
	b := open(t)
	s := start(t)
	const mistake = "services/shop.example.com/deployments/eu-mistake"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.addresses[0]+"/dbcontroller.v1.DeploymentService/CreateDeployment",
		strings.NewReader(`{"name": "`+mistake+`", "version": "v1"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+operatorToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
		t.Fatalf("create: %s", res.Status)
	}
	b.visit(s.addresses[0] + "/ui/")
	b.login(operatorToken)
	b.click("main a[href^='#/d/'][href$='eu']")
	b.until("the verbs of the first deployment", "document.querySelector('#verb-plan') && !document.querySelector('#verb-remove')")
	b.visit(s.addresses[0] + "/ui/")
	b.click("main a[href^='#/d/'][href$='eu-mistake']")
	b.opens("remove")
	b.until("the preview", "document.querySelector('dialog .effects')?.innerText.includes('delete all keys of "+mistake+"')")
	b.refusesConfirmation(deployment)
	b.confirms()
	b.until("the overview without it", "document.querySelector(\"main a[href$='eu']\") && !document.querySelector(\"main a[href$='eu-mistake']\")")
	b.clean("401", "404")
}
