/* SPDX-License-Identifier: Apache-2.0 */
/* Two panels of SVG, both with logarithmic axes: GB/s and microseconds over the size of copies. */
#include "cli/bench.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"

enum { WIDTH = 1080, HEIGHT = 500, PANEL = 410, TALL = 320, TOP = 84, LEFT = 80, GAP = 110 };

struct axis {
    double low, high; /* in powers of ten (y) or of two (x) */
};

/* What a server calls its GPU may be anything. */
static void plot_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c < ' ') {
            fprintf(out, c < ' ' ? " " : "&#%u;", c);
        } else {
            fputc(c, out);
        }
    }
}

/* Whose figures these are. */
static void draw_title(const struct tow_bench *bench, FILE *out)
{
    fprintf(out, "<text x=\"%d\" y=\"26\" font-size=\"17\" font-weight=\"bold\">Copies: ", LEFT);
    plot_text(out, bench->device[TOW_BENCH_REMOTE]);
    fprintf(out, " at ");
    plot_text(out, bench->server);
    fprintf(out, "</text>\n<text x=\"%d\" y=\"46\" fill=\"#555\">Towline %s, %s, medians of %u %s",
            LEFT, TOWLINE_VERSION, bench->date, bench->rounds,
            bench->rounds == 1 ? "round" : "rounds");
    fprintf(out, "</text>\n");
}

static double bench_plot_at(const struct axis *axis, double value, double length)
{
    return (value - axis->low) / (axis->high - axis->low) * length;
}

/* What a panel shows of a figure. */
static double bench_plot_shown(const struct tow_bench_figure *f, enum tow_bench_driver driver,
                               bool time)
{
    double rate = tow_bench_median(f->value[driver], f->count[driver]);
    if (rate <= 0) {
        return 0;
    }
    return time ? (double)f->bytes / rate / 1e3 : rate;
}

static void find_axes(const struct tow_bench *bench, bool time, struct axis *ret_x,
                      struct axis *ret_y)
{
    struct axis x = {1e9, -1e9}, y = {1e9, -1e9};
    for (unsigned i = 0; i < bench->figure_count; i++) {
        const struct tow_bench_figure *f = &bench->figures[i];
        for (int driver = 0; driver < TOW_BENCH_DRIVERS; driver++) {
            double value =
                f->bytes != 0 ? bench_plot_shown(f, (enum tow_bench_driver)driver, time) : 0;
            if (value <= 0) {
                continue;
            }
            x.low = fmin(x.low, log2((double)f->bytes));
            x.high = fmax(x.high, log2((double)f->bytes));
            y.low = fmin(y.low, floor(log10(value)));
            y.high = fmax(y.high, ceil(log10(value)));
        }
    }
    x.high = x.high > x.low ? x.high : x.low + 1;
    y.high = y.high > y.low ? y.high : y.low + 1;
    *ret_x = x;
    *ret_y = y;
}

static void draw_frame(FILE *out, double left, const struct axis *x, const struct axis *y,
                       const char *title)
{
    fprintf(
        out,
        "<text x=\"%.0f\" y=\"%d\" font-size=\"15\" font-weight=\"bold\">%s</text>\n"
        "<rect x=\"%.0f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n",
        left, TOP - 14, title, left, TOP, PANEL, TALL);
    for (double power = y->low; power <= y->high + 0.5; power += 1) {
        double height = TOP + TALL - bench_plot_at(y, power, TALL);
        fprintf(out,
                "<path d=\"M%.0f %.1fh%d\" stroke=\"#ddd\"/>"
                "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                left, height, PANEL, left - 6, height + 4, pow(10, power));
    }
    for (double power = x->low; power <= x->high + 0.5; power += 4) {
        double place = left + bench_plot_at(x, power, PANEL);
        char size[16];
        fprintf(out,
                "<path d=\"M%.1f %dv%d\" stroke=\"#eee\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"10\">%s</text>\n",
                place, TOP, TALL, place, TOP + TALL + 16, tow_cli_bytes(exp2(power), size));
    }
}

/* Names and units of the axes. */
static void draw_units(FILE *out, double left, const char *unit)
{
    fprintf(out,
            "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">size of the copy (bytes)</text>\n"
            "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 %.0f "
            "%d)\">%s</text>\n",
            left + PANEL / 2.0, TOP + TALL + 34, left - 52, TOP + TALL / 2, left - 52,
            TOP + TALL / 2, unit);
}

static bool is_of_curve(const struct tow_bench_figure *f, const char *memory, const char *direction)
{
    return f->bytes != 0 && strcmp(f->memory, memory) == 0 && strcmp(f->direction, direction) == 0;
}

static void draw_mark(FILE *out, double x, double y, const char *colour, bool native)
{
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\" stroke=\"%s\"/>\n", x, y,
            native ? "white" : colour, colour);
}

static void draw_panel(const struct tow_bench *bench, FILE *out, bool time, double left)
{
    static const struct {
        const char *memory, *direction, *colour;
    } curves[] = {
        {"pageable", "h2d", "#1f77b4"},   {"pageable", "d2h", "#2ca02c"},
        {"pinned", "h2d", "#d62728"},     {"pinned", "d2h", "#9467bd"},
        {"registered", "h2d", "#ff7f0e"}, {"registered", "d2h", "#8c564b"},
        {"rows", "h2d", "#17becf"},       {"rows", "d2h", "#7f7f7f"},
    };
    struct axis x, y;
    find_axes(bench, time, &x, &y);
    draw_frame(out, left, &x, &y, time ? "time of a copy" : "bandwidth");
    draw_units(out, left, time ? "microseconds" : "GB/s");
    for (int driver = 0; driver < TOW_BENCH_DRIVERS; driver++) {
        for (size_t c = 0; c < sizeof curves / sizeof *curves; c++) {
            bool open = false;
            for (unsigned i = 0; i < bench->figure_count; i++) {
                const struct tow_bench_figure *f = &bench->figures[i];
                double value = is_of_curve(f, curves[c].memory, curves[c].direction)
                                   ? bench_plot_shown(f, (enum tow_bench_driver)driver, time)
                                   : 0;
                if (value <= 0) {
                    continue;
                }
                fprintf(out, open ? " %.1f,%.1f" : "<polyline points=\"%.1f,%.1f",
                        left + bench_plot_at(&x, log2((double)f->bytes), PANEL),
                        TOP + TALL - bench_plot_at(&y, log10(value), TALL));
                open = true;
            }
            if (open) {
                fprintf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
                        curves[c].colour,
                        driver == TOW_BENCH_NATIVE ? " stroke-dasharray=\"5 4\"" : "");
            }
            for (unsigned i = 0; i < bench->figure_count; i++) {
                const struct tow_bench_figure *f = &bench->figures[i];
                double value = is_of_curve(f, curves[c].memory, curves[c].direction)
                                   ? bench_plot_shown(f, (enum tow_bench_driver)driver, time)
                                   : 0;
                if (value > 0) {
                    draw_mark(out, left + bench_plot_at(&x, log2((double)f->bytes), PANEL),
                              TOP + TALL - bench_plot_at(&y, log10(value), TALL), curves[c].colour,
                              driver == TOW_BENCH_NATIVE);
                }
            }
            if (driver == TOW_BENCH_REMOTE && !time) {
                fprintf(out, "<text x=\"%zu\" y=\"%zu\" fill=\"%s\">%s %s</text>\n",
                        LEFT + 125 * (c / 2), HEIGHT - 30 + 18 * (c % 2), curves[c].colour,
                        curves[c].memory, curves[c].direction);
            }
        }
    }
}

int tow_bench_plot(const struct tow_bench *bench, FILE *out)
{
    bool any = false;
    for (unsigned i = 0; i < bench->figure_count; i++) {
        any |= bench->figures[i].bytes != 0;
    }
    if (!any) {
        tow_cli_say("there is nothing to draw: --plot wants --part bandwidth");
        return -ENODATA;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_title(bench, out);
    draw_panel(bench, out, false, LEFT);
    draw_panel(bench, out, true, LEFT + PANEL + GAP);
    fprintf(out, "<text x=\"%d\" y=\"%d\">whole lines and marks: Towline%s</text>\n</svg>\n",
            LEFT + PANEL + GAP, HEIGHT - 22, bench->native ? "; dashed and hollow: native" : "");
    return fflush(out) != 0 || ferror(out) ? -EIO : 0;
}
