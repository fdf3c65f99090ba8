package localmongo

import "testing"

func TestMemoryThatIsAvailable(t *testing.T) {
	if got := memoryDir(); got != "" && got != memoryFolder {
		t.Errorf("data would lie in %s", got)
	}
	for text, want := range map[string]uint64{
		"MemTotal:       24689224 kB\nMemFree:        17893832 kB\nMemAvailable:   22899064 kB\n": 22899064 << 10,
		"MemTotal:       24689224 kB\n":        0,
		"MemAvailable:   a lot\n":              0,
		"MemAvailable:   99999999999999 kiB\n": 0,
	} {
		if got := available(text); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}
