package integration_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/access/accesstest"
)

// TestSecurityInsecureIsVisible: whichever controller is asked, it says of every controller
// and every server what is insecure about it, and so does 'get'.
func TestSecurityInsecureIsVisible(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := &secured{authority: accesstest.NewAuthority(t)}
	s.start(t, t.TempDir(), "deployment: services/sec/deployments/x\noperator: {listen: \"127.0.0.1:0\"}\napi: {listen: \"0.0.0.0:0\"}\n"+unreachable, true)
	api := "127.0.0.1" + s.at["api"][strings.LastIndex(s.at["api"], ":"):]
	here := caller{client: s.client(t, nil)}
	if code, message := here.ask(t, "http://"+api+dbcontrollerv1connect.DeploymentServiceCreateDeploymentProcedure, `{"version": "v1"}`); code != "ok" {
		t.Fatalf("create: %s %s", code, message)
	}
	const everything = " has no TLS and identities (--insecure): anyone who reaches it may do everything"
	const anywhere = `(0\.0\.0\.0|\[::\]):[0-9]+`
	port := regexp.MustCompile(anywhere)
	plain := func(lines []string) []string {
		for i := range lines {
			lines[i] = port.ReplaceAllString(lines[i], "*")
		}
		return lines
	}
	get := func(args ...string) (string, error) {
		r := execute(ctx, t, nil, append([]string{"get", "deployment", "--server", api}, args...)...)
		if r.code != 0 {
			return "", fmt.Errorf("get: %+v", r)
		}
		return r.stdout, nil
	}
	eventually(ctx, t, "the API says what is insecure", func() error {
		text, err := get("--json")
		if err != nil {
			return err
		}
		var d dbv1.Deployment
		if err := protojson.Unmarshal([]byte(text), &d); err != nil {
			return err
		}
		var ofServers []string
		for _, server := range d.GetServers() {
			ofServers = append(ofServers, plain(server.GetWarnings())...)
		}
		want := []string{"controller first: API port at *" + everything, "controller second: API port at *" + everything}
		if got := plain(d.GetWarnings()); !slices.Equal(got, want) || !slices.Equal(ofServers, []string{"API port at *" + everything}) {
			return fmt.Errorf("it warns of controllers %q and servers %q", got, ofServers)
		}
		return nil
	})
	text, err := get()
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"controller first", "controller second", "server server"} {
		if line := regexp.MustCompile(`(?m)INSECURE +` + who + `: API port at ` + anywhere + regexp.QuoteMeta(everything) + `$`); !line.MatchString(text) {
			t.Errorf("get does not say that %s is insecure:\n%s", who, text)
		}
	}
}
