package docs_test

import (
	"slices"
	"strings"
	"testing"
)

// TestAttackersAreLimited: security.md has, for each attacker, a row for each asset, which names
// tests that exist, or says that nothing limits the attacker there. Every test that the page names
// exists.
func TestAttackersAreLimited(t *testing.T) {
	t.Parallel()
	assets := []string{
		"records of the served version", "records of the passive version", "marks and fences", "etcd and the switch",
		"keys and plaintext", "tokens and credentials", "availability",
	}
	attackers := []string{
		"Anonymous on the network", "An application's token", "A viewer", "An operator",
		"An application's database login, with the least role", "A database's administrator without keys",
		"A neighbour on the machine, as another user",
	}
	tests, _ := inventory(t)
	text := read(t, "security.md")
	_, part, found := strings.Cut(text, "### What each attacker can do\n")
	part, _, end := strings.Cut(part, "\n## ")
	if !found || !end {
		t.Fatal("security.md has no section of attackers and assets")
	}
	sections := strings.Split(part, "\n#### ")[1:]
	var seen []string
	for _, section := range sections {
		attacker, table, _ := strings.Cut(section, "\n")
		seen = append(seen, attacker)
		var rows []string
		for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
			if strings.HasPrefix(row[1], "---") || row[1] == "asset" {
				continue
			}
			rows = append(rows, row[1])
			if !testName.MatchString(row[3]) && !strings.Contains(row[3], "not limited") {
				t.Errorf("%s, %s: %q names no test, as `folder.TestName`, and does not say that it is not limited", attacker, row[1], row[3])
			}
		}
		if !slices.Equal(rows, assets) {
			t.Errorf("%s has the rows %q, want %q", attacker, rows, assets)
		}
	}
	if !slices.Equal(seen, attackers) {
		t.Errorf("the attackers are %q, want %q", seen, attackers)
	}
	named := testName.FindAllStringSubmatch(text, -1)
	if len(named) < 60 {
		t.Errorf("the page names %d tests, there have long been more", len(named))
	}
	for _, n := range named {
		if !slices.Contains(testsOf(tests, n[1]), n[2]) {
			t.Errorf("%s has no test %s", n[1], n[2])
		}
	}
}
