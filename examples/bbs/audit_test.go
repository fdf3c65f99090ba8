package bbs_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
)

// TestAudit: of each call of a v1 client over v2 data both versions are written, and what it was
// refused with, and no value of an environment variable.
func TestAudit(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := httptest.NewServer(bbs.AuditedV2(sampletest.New(t, bbs.KindDeployments, bbs.KindDefinitions, bbs.KindActualLRPs, bbs.KindCells), bbs.NewAudit(&out)))
	defer s.Close()
	c := bbsv1connect.NewDesiredLRPServiceClient(s.Client(), s.URL)
	const secret = "s3cret"
	create := &bbsv1.CreateDesiredLRPRequest{DesiredLrp: &bbsv1.DesiredLRP{ProcessGuid: "web", Domain: "d", Instances: 2, Definition: &bbsv1.Definition{
		Rootfs: "docker:///busybox", Env: []*bbsv1.EnvVar{{Name: "PASSWORD", Value: secret}},
	}}}
	if _, err := c.CreateDesiredLRP(t.Context(), connect.NewRequest(create)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDesiredLRP(t.Context(), connect.NewRequest(create)); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("it shows a value: %s", out.String())
	}
	var seen []string
	for line := range strings.Lines(out.String()) {
		var l struct {
			What, Procedure, Served, Code string
			Old, New                      map[string]any
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Procedure != "/bbs.v1.DesiredLRPService/CreateDesiredLRP" || l.Served != "/bbs.v2.LRPDeploymentService/CreateLRPDeployment" {
			t.Errorf("line %s", line)
		}
		if l.What == "record" && len(seen) == 0 {
			definitions, _ := l.New["definitions"].(map[string]any)
			if l.Old["processGuid"] != "web" || l.New["activeDefinitionId"] != "web" || len(definitions) != 1 || !strings.Contains(line, "PASSWORD") {
				t.Errorf("record %s", line)
			}
		}
		seen = append(seen, strings.TrimSpace(l.What+" "+l.Code))
	}
	want := "record, request, record, response, record, request, response already_exists"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("seen %s, want %s", got, want)
	}
}
