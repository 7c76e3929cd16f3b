package soak

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// plot draws each series in a panel of its own, one below the other, from zero, as
// SVG.
func plot(title string, all []*series) string {
	const width, height, left, top, gap = 900, 110, 90, 40, 40
	var b strings.Builder
	total := top + len(all)*(height+gap)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", left+width+20, total)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="10" y="20" font-size="14">%s</text>`+"\n", html.EscapeString(title))
	for i, s := range all {
		y := top + i*(height+gap)
		most, last := max(s.most(), 1), max(s.At[len(s.At)-1], time.Second)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s, %s</text>`+"\n", left, y+10, html.EscapeString(s.Name), html.EscapeString(s.Unit))
		fmt.Fprintf(&b, `<path d="M%d %d V%d H%d" fill="none" stroke="black"/>`+"\n", left, y+15, y+height, left+width)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%.4g</text><text x="%d" y="%d" text-anchor="end">0</text><text x="%d" y="%d" text-anchor="end">%v</text>`+"\n",
			left-5, y+25, most, left-5, y+height, left+width, y+height+15, last.Round(time.Second))
		b.WriteString(`<polyline fill="none" stroke="steelblue" points="`)
		for n, at := range s.At {
			fmt.Fprintf(&b, "%.1f,%.1f ", left+width*at.Seconds()/last.Seconds(), float64(y+height)-(height-20)*s.Value[n]/most)
		}
		b.WriteString(`"/>` + "\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}
